//! Bundles: renewals of many locks, or looks of many waiters for one lock, in one script call.
//!
//! Most of what such a command costs the server is receiving it, so commands that are sent at the
//! same time are bundled. Each keeps its number and has an answer of its own. What the call could
//! not do in the simple way is sent again by itself, and so are all commands of a bundle that the
//! server refuses as a whole.

use redis::{ServerError, Value};

use super::together::{BundledAnswer, Together};
use super::{Conversation, Expected, Send, dropped};
use crate::store::Command;
use crate::store::redis::decode;
use crate::store::redis::probe::AtomicBy;

/// The most commands in a bundle: more would save nothing, and delay other commands.
const MOST: usize = 64;

/// The most bundles that are collected at once, because each command is compared with all of them.
const MOST_BUNDLES: usize = 16;

/// The most bytes of key names in a bundle.
const LONG: usize = 8 * 1024;

/// Commands that are sent in one call.
#[derive(Debug)]
pub(super) struct Bundle {
    together: Together,
    length: usize,
    questions: Vec<(u64, Command)>,
}

/// The bundles that are being collected.
#[derive(Debug, Default)]
pub(super) struct Bundles(Vec<Bundle>);

/// Which sorts of bundles this server refuses.
#[derive(Debug, Default)]
pub(super) struct Denied {
    renewals: bool,
    looks: bool,
}

impl Denied {
    fn of(&mut self, together: &Together) -> &mut bool {
        if together.is_renewal() { &mut self.renewals } else { &mut self.looks }
    }
}

impl Bundles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a command. Returns a bundle that has to be sent before anything else is added.
    fn add(&mut self, together: Together, question: (u64, Command)) -> Option<Bundle> {
        let place = self.0.iter().position(|it| it.together == together).unwrap_or_else(|| {
            self.0.push(Bundle { together, length: 0, questions: Vec::new() });
            self.0.len() - 1
        });
        let bundle = self.0.get_mut(place)?;
        let (_, command) = &question;
        bundle.length +=
            command.names.main().len() + command.verb.token().map_or(0, |token| token.len());
        bundle.questions.push(question);
        let is_full = bundle.questions.len() >= MOST || bundle.length >= LONG;
        is_full.then(|| self.0.swap_remove(place))
    }
}

impl Conversation {
    /// Collects a command that can be bundled, until [`send_bundles`](Self::send_bundles). Returns
    /// any other command.
    pub(super) fn bundle(&mut self, seq: u64, command: Command, send: Send<'_>) -> Option<Command> {
        let Some(together) = Together::of(&command).filter(|it| self.can_bundle(it)) else {
            return Some(command);
        };
        if self.bundles.0.len() >= MOST_BUNDLES {
            self.send_bundles(send);
        }
        if let Some(full) = self.bundles.add(together, (seq, command)) {
            self.send_bundle(full, send);
        }
        None
    }

    /// In a cluster, only looks are bundled, since a script may use keys of one slot only, and not
    /// while that slot is being moved.
    fn can_bundle(&mut self, together: &Together) -> bool {
        let has_neighbours = self.member.as_ref().is_some_and(|member| member.has_neighbours());
        !*self.denied.of(together)
            && self.found.atomic_by == AtomicBy::Scripts
            && !has_neighbours
            && !self.cluster.is_one()
    }

    /// Sends the collected bundles. To be called before anything else is sent, because that may be
    /// for one of their keys.
    pub(in crate::store::redis) fn send_bundles(&mut self, send: Send<'_>) {
        while let Some(bundle) = self.bundles.0.pop() {
            self.send_bundle(bundle, send);
        }
    }

    fn send_bundle(&mut self, mut bundle: Bundle, send: Send<'_>) {
        if bundle.questions.len() > 1 {
            send.send(bundle.together.by_hash(&bundle.questions, &self.context()));
            return self.asked.push_back(Expected::Bundle(bundle, InFull(false)));
        }
        if let Some((seq, command)) = bundle.questions.pop() {
            self.ask_part(seq, command, None, false, send);
        }
    }

    /// The reply to a bundle.
    pub(super) fn take_bundle_reply(
        &mut self,
        bundle: Bundle,
        InFull(in_full): InFull,
        value: Value,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        if decode::is_forgotten(&value) && !in_full {
            let bundle = self.still_wanted(bundle, wants);
            if !bundle.questions.is_empty() {
                send.send(bundle.together.in_full(&bundle.questions, &self.context()));
                self.asked.push_back(Expected::Bundle(bundle, InFull(true)));
            }
            return;
        }
        let answers = match value {
            Value::ServerError(error) => return self.refused(bundle, &error, wants, send),
            value => bundle.together.read(&value, bundle.questions.len()),
        };
        let Some(answers) = answers else {
            return self.lose_place("the answer to many questions makes no sense");
        };
        for ((seq, command), answers) in bundle.questions.into_iter().zip(answers) {
            match answers {
                BundledAnswer::AskAlone => self.ask_alone(seq, command, wants, send),
                BundledAnswer::Answer(answer) => self.finish(seq, Ok(answer)),
            }
        }
    }

    /// The server has refused the bundle as a whole, which says nothing about the single commands.
    fn refused(
        &mut self,
        bundle: Bundle,
        error: &ServerError,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        match decode::code_of(error) {
            // The user or the server may lack a command that only the bundle needs.
            "NOPERM" | "ERR" => *self.denied.of(&bundle.together) = true,
            "CROSSSLOT" => self.cluster.found(true),
            _ => {}
        }
        let fault = decode::refusal(error);
        for (seq, command) in bundle.questions {
            if self.broken.is_some() {
                self.finish(seq, Err(fault.clone()));
            } else {
                self.ask_alone(seq, command, wants, send);
            }
        }
    }

    fn ask_alone(
        &mut self,
        seq: u64,
        command: Command,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        if wants(seq) {
            self.ask_part(seq, command, None, false, send);
        } else {
            self.finish(seq, Err(dropped()));
        }
    }

    /// Removes commands whose tokens are being released: another round would overtake the release.
    fn still_wanted(&mut self, mut bundle: Bundle, wants: &mut dyn FnMut(u64) -> bool) -> Bundle {
        let questions = std::mem::take(&mut bundle.questions);
        let (wanted, rest): (Vec<_>, Vec<_>) =
            questions.into_iter().partition(|(seq, _)| wants(*seq));
        for (seq, _) in rest {
            self.finish(seq, Err(dropped()));
        }
        Bundle { questions: wanted, ..bundle }
    }
}

/// Whether a bundle was sent with the full text of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFull(bool);
