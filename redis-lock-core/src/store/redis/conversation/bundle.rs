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

/// The most bundles that are collected at once, because each command is compared with all of them.
const MOST_BUNDLES: usize = 16;

/// The most bytes of a bundle, for each of the commands that it may have.
const LONG: usize = 128;

/// Commands that are sent in one call.
#[derive(Debug)]
pub(super) struct Bundle {
    together: Together,
    length: usize,
    questions: Vec<(u64, Command)>,
}

impl Bundle {
    fn is_full(&self) -> bool {
        let most = self.together.most();
        self.questions.len() >= most || self.length >= most * LONG
    }

    fn concerns(&self, key: &str) -> bool {
        self.questions.iter().any(|(_, command)| command.names.main() == key)
    }
}

/// The bundles that are being collected.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    collected: Vec<Bundle>,
}

/// Which sorts of bundles this server refuses.
#[derive(Debug, Default)]
pub(super) struct Denied([bool; 2]);

impl Denied {
    fn has(&self, together: &Together) -> bool {
        self.0.get(together.sort()) == Some(&true)
    }

    fn add(&mut self, together: &Together) {
        if let Some(denied) = self.0.get_mut(together.sort()) {
            *denied = true;
        }
    }
}

impl Bundles {
    pub(super) fn is_empty(&self) -> bool {
        self.collected.is_empty()
    }

    /// Whether another bundle has to be sent before this command may be added to its own.
    fn has_before(&self, together: &Together, command: &Command) -> bool {
        let mut others = self.collected.iter().filter(|bundle| bundle.together != *together);
        others.any(|bundle| bundle.concerns(command.names.main()))
    }

    /// Adds a command. Returns a bundle that has to be sent before anything else is added.
    fn add(&mut self, together: Together, question: (u64, Command)) -> Option<Bundle> {
        let collected = &mut self.collected;
        let place = collected.iter().position(|it| it.together == together).unwrap_or_else(|| {
            collected.push(Bundle { together, length: 0, questions: Vec::new() });
            collected.len() - 1
        });
        let bundle = collected.get_mut(place)?;
        bundle.length += bundle.together.length_of(&question.1);
        bundle.questions.push(question);
        if !bundle.is_full() {
            return None;
        }
        Some(collected.swap_remove(place))
    }
}

impl Conversation {
    /// Collects a command that can be bundled, until [`send_bundles`](Self::send_bundles). Returns
    /// any other command.
    pub(super) fn bundle(&mut self, seq: u64, command: Command, send: Send<'_>) -> Option<Command> {
        let Some(together) = Together::of(&command) else { return Some(command) };
        if !self.can_bundle(&together) {
            return Some(command);
        }
        let is_full = self.bundles.collected.len() >= MOST_BUNDLES;
        if is_full || self.bundles.has_before(&together, &command) {
            self.send_bundles(send);
        }
        if let Some(full) = self.bundles.add(together, (seq, command)) {
            self.send_bundle(full, send);
        }
        None
    }

    /// In a cluster a script may not declare keys of several slots. Those of one lock are in one.
    fn can_bundle(&self, together: &Together) -> bool {
        let has_neighbours = || self.member.as_ref().is_some_and(|member| member.has_neighbours());
        let is_one_slot = matches!(together, Together::Looks { .. });
        !self.denied.has(together)
            && self.found.atomic_by == AtomicBy::Scripts
            && (is_one_slot || !has_neighbours() && !self.cluster.is_one())
    }

    /// Sends the collected bundles. To be called before anything else is sent, because that may be
    /// for one of their keys.
    pub(in crate::store::redis) fn send_bundles(&mut self, send: Send<'_>) {
        let mut collected = std::mem::take(&mut self.bundles.collected);
        for bundle in collected.drain(..) {
            self.send_bundle(bundle, send);
        }
        // The list is used again.
        self.bundles.collected = collected;
    }

    fn send_bundle(&mut self, mut bundle: Bundle, send: Send<'_>) {
        if bundle.questions.len() > 1 {
            return self.send_call(bundle, InFull(false), send);
        }
        if let Some((seq, command)) = bundle.questions.pop() {
            self.ask_part(seq, command, None, false, send);
        }
    }

    fn send_call(&mut self, bundle: Bundle, in_full: InFull, send: Send<'_>) {
        let Bundle { together, questions, .. } = &bundle;
        let script = together.script();
        let call = match in_full {
            InFull(false) => ("EVALSHA", &*script.hash),
            InFull(true) => ("EVAL", &*script.code),
        };
        together.send(call, questions, &self.context(), send);
        self.asked.push_back(Expected::Bundle(bundle, in_full));
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
        self.note_trouble(&value);
        if decode::is_forgotten(&value) && !in_full {
            let bundle = self.still_wanted(bundle, wants);
            if !bundle.questions.is_empty() {
                self.send_call(bundle, InFull(true), send);
            }
            return;
        }
        let answers = match value {
            Value::ServerError(error) => return self.refused(bundle, &error, wants, send),
            value => bundle.together.read(&value, bundle.questions.len()),
        };
        let Some(answers) = answers else {
            return self.lose_place("the answer to many commands is none that a lock server gives");
        };
        for (place, (seq, command)) in bundle.questions.into_iter().enumerate() {
            match answers.of(place) {
                BundledAnswer::Answer(answer) => self.finish(seq, Ok(answer)),
                BundledAnswer::AskAlone => self.ask_alone(seq, command, wants, send),
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
            "NOPERM" | "ERR" => self.denied.add(&bundle.together),
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
