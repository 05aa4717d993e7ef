//! Bundles: renewals of many mutexes in one script call.
//!
//! Most of what a renewal costs the server is receiving it, so renewals that are sent at the same time
//! are bundled. Each keeps its number and gets an answer. A renewal that the call could not do in the
//! simple way is sent again alone. If the server refuses the whole bundle, all its renewals are.

use std::time::Duration;

use redis::{ServerError, Value};

use super::{Conversation, Expected, Send};
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::store::redis::decode;
use crate::store::redis::probe::AtomicBy;
use crate::store::redis::scripts::RENEW_MANY;
use crate::store::{Answer, Command, Verb};

/// The most renewals in a bundle. More would save nothing, and delay other commands.
const MOST: usize = 64;

/// The most bytes of keys and tokens in a bundle.
const LONG: usize = MOST * 128;

/// Renewals for the same time that are sent in one call.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    length: usize,
    questions: Vec<(u64, Command)>,
}

/// How long a lease this command renews, if it can be bundled with others for the same time.
fn bundled(command: &Command) -> Option<Duration> {
    match command.verb {
        Verb::Renew { ttl, .. } if command.kind == Kind::Mutex => ttl,
        _ => None,
    }
}

fn token(command: &Command) -> &str {
    command.verb.token().map_or("", |token| token)
}

impl Conversation {
    /// Collects a command that can be bundled, until [`send_bundles`](Self::send_bundles). Returns
    /// any other command.
    pub(super) fn bundle(&mut self, seq: u64, command: Command, send: Send<'_>) -> Option<Command> {
        // In a cluster a script may not declare keys of several slots.
        let has_slots =
            self.cluster.is_one() || self.member.as_ref().is_some_and(|it| it.has_neighbours());
        let by_scripts = self.found.atomic_by == AtomicBy::Scripts;
        let Some(ttl) = bundled(&command).filter(|_| by_scripts && !has_slots && !self.no_bundles)
        else {
            return Some(command);
        };
        let bundle = self.bundles.entry(ttl).or_default();
        bundle.length += command.names.main().len() + token(&command).len();
        bundle.questions.push((seq, command));
        if bundle.questions.len() >= MOST || bundle.length >= LONG {
            let full = self.bundles.remove(&ttl).unwrap_or_default();
            self.send_bundle(ttl, full, send);
        }
        None
    }

    /// Sends the collected bundles. To be called before anything else is sent, because that may be
    /// for one of their keys.
    pub(in crate::store::redis) fn send_bundles(&mut self, send: Send<'_>) {
        for (ttl, bundle) in std::mem::take(&mut self.bundles) {
            self.send_bundle(ttl, bundle, send);
        }
    }

    fn send_bundle(&mut self, ttl: Duration, mut bundle: Bundle, send: Send<'_>) {
        if bundle.questions.len() < 2 {
            if let Some((seq, command)) = bundle.questions.pop() {
                self.ask_part(seq, command, None, false, send);
            }
            return;
        }
        // In full, since the server may have forgotten it: that costs little for so many.
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&*RENEW_MANY.code).arg(bundle.questions.len());
        for (_, command) in &bundle.questions {
            cmd.arg(command.names.main());
        }
        cmd.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        for (_, command) in &bundle.questions {
            cmd.arg(token(command));
        }
        send.send(cmd);
        self.asked.push_back(Expected::Bundle(bundle));
    }

    /// The reply to a bundle.
    pub(super) fn take_bundle_reply(
        &mut self,
        bundle: Bundle,
        value: &Value,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        self.note_trouble(value);
        let answers = match value {
            Value::ServerError(error) => return self.refused(bundle, error, wants, send),
            value => read(value, bundle.questions.len()),
        };
        let Some(answers) = answers else {
            return self.lose_place("the answer to many commands is none that a lock server gives");
        };
        for ((seq, command), answer) in bundle.questions.into_iter().zip(answers) {
            match answer {
                Some(answer) => self.finish(seq, Ok(answer)),
                None => self.ask_alone(seq, command, wants, send),
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
            "NOPERM" | "ERR" => self.no_bundles = true,
            "CROSSSLOT" => self.cluster.found(true),
            _ => {}
        }
        for (seq, command) in bundle.questions {
            if self.broken.is_some() {
                self.finish(seq, Err(decode::refusal(error)));
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
            // Its token is being released; another round would overtake the release.
            self.finish(seq, Err(Fault::unwanted()));
        }
    }
}

/// The answers to `count` renewals; `None` for a renewal that must be sent alone. The reply lists the
/// exceptions: the number of a renewal that was not done, or its negative if a client waits. `None` when
/// the reply is malformed.
fn read(value: &Value, count: usize) -> Option<Vec<Option<Answer>>> {
    let Value::Array(odd) = value else { return None };
    let renewed = |waited_for| Some(Answer::Renewed { longer: None, waited_for, slot: None });
    let mut answers = vec![renewed(false); count];
    for number in odd {
        let Value::Int(number) = number else { return None };
        let place = usize::try_from(number.unsigned_abs()).ok()?.checked_sub(1)?;
        *answers.get_mut(place)? = if *number > 0 { None } else { renewed(true) };
    }
    Some(answers)
}
