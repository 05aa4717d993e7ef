//! Renewals of many locks in one call.
//!
//! What a renewal costs the server is mostly its arrival, so those that are sent in one breath go
//! together. Each keeps its number, and has an answer of its own: a lock that the call could not
//! simply renew is asked for by itself, and so are all when the server refuses the call as a whole.

use std::time::Duration;

use redis::{Cmd, ServerError, Value};

use super::{Conversation, Expected, Send, dropped};
use crate::domain::kind::Kind;
use crate::store::redis::decode;
use crate::store::redis::probe::Rung;
use crate::store::redis::scripts::RENEW_MANY;
use crate::store::{Answer, Command, Verb};

/// So many go together: more would save nothing, and keep others waiting for longer.
const MOST: usize = 64;

/// Names longer than this in all go in several calls.
const LONG: usize = 8 * 1024;

/// Renewals of leases that are all of the same length.
#[derive(Debug)]
pub(super) struct Bundle {
    ttl: Duration,
    length: usize,
    renewals: Vec<(u64, Command)>,
}

/// What waits to be sent with others.
#[derive(Debug, Default)]
pub(super) struct Bundles(Vec<Bundle>);

/// The lease and the length of the names of a renewal that can go with others.
fn terms(command: &Command) -> Option<(Duration, usize)> {
    match (command.kind, &command.verb) {
        (Kind::Mutex, Verb::Renew { token, ttl: Some(ttl) }) => {
            Some((*ttl, command.names.main().len() + token.len()))
        }
        _ => None,
    }
}

impl Bundles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a renewal. Returns a bundle that is to be sent before anything else is added.
    fn add(&mut self, ttl: Duration, length: usize, renewal: (u64, Command)) -> Option<Bundle> {
        let place = self.0.iter().position(|bundle| bundle.ttl == ttl).unwrap_or_else(|| {
            self.0.push(Bundle { ttl, length: 0, renewals: Vec::new() });
            self.0.len() - 1
        });
        let bundle = self.0.get_mut(place)?;
        bundle.length += length;
        bundle.renewals.push(renewal);
        let is_full = bundle.renewals.len() >= MOST || bundle.length >= LONG;
        is_full.then(|| self.0.swap_remove(place))
    }
}

impl Bundle {
    fn by_hash(&self) -> Cmd {
        self.form("EVALSHA", &RENEW_MANY.hash)
    }

    fn in_full(&self) -> Cmd {
        self.form("EVAL", &RENEW_MANY.code)
    }

    fn form(&self, name: &str, script: &str) -> Cmd {
        let count = self.renewals.len();
        let mut cmd = Cmd::with_capacity(4 + 2 * count, script.len() + 64 + self.length);
        cmd.arg(name).arg(script).arg(count);
        for (_, command) in &self.renewals {
            cmd.arg(command.names.main());
        }
        cmd.arg(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX));
        for (_, command) in &self.renewals {
            cmd.arg(command.verb.token().map_or("", |token| token));
        }
        cmd
    }
}

/// What the script says of one renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Renewed,
    WaitedFor,
    AskAlone,
}

/// What the script says of each of so many; none when it can't have said that.
fn read(value: &Value, count: usize) -> Option<Vec<Said>> {
    let Value::Array(odd) = value else { return None };
    let mut said = vec![Said::Renewed; count];
    for number in odd {
        let Value::Int(number) = number else { return None };
        let place = usize::try_from(number.unsigned_abs()).ok()?.checked_sub(1)?;
        *said.get_mut(place)? = if *number > 0 { Said::AskAlone } else { Said::WaitedFor };
    }
    Some(said)
}

impl Conversation {
    /// Keeps a renewal back that can go with others, until [`send_bundles`](Self::send_bundles).
    /// Returns any other command.
    pub(super) fn bundle(
        &mut self,
        seq: u64,
        command: Command,
        send: Send<'_>,
    ) -> Option<Command> {
        let Some((ttl, length)) = terms(&command).filter(|_| self.can_bundle()) else {
            return Some(command);
        };
        if let Some(full) = self.bundles.add(ttl, length, (seq, command)) {
            self.send_bundle(full, send);
        }
        None
    }

    /// A node of a cluster executes scripts for keys of one slot only.
    fn can_bundle(&self) -> bool {
        let has_neighbours = self.site.as_ref().is_some_and(|site| site.has_neighbours());
        self.may_bundle
            && self.found.rung == Rung::Scripts
            && !has_neighbours
            && !self.cluster.is_one()
    }

    /// Sends the renewals that were kept back. To be called before anything else is sent, since what
    /// follows may be for one of their keys.
    pub(in crate::store::redis) fn send_bundles(&mut self, send: Send<'_>) {
        while let Some(bundle) = self.bundles.0.pop() {
            self.send_bundle(bundle, send);
        }
    }

    fn send_bundle(&mut self, mut bundle: Bundle, send: Send<'_>) {
        if bundle.renewals.len() > 1 {
            send(bundle.by_hash());
            return self.asked.push_back(Expected::Bundle(bundle, InFull(false)));
        }
        if let Some((seq, command)) = bundle.renewals.pop() {
            self.ask_part(seq, command, None, false, send);
        }
    }

    /// The reply to a bundle.
    pub(super) fn hear_bundle(
        &mut self,
        bundle: Bundle,
        InFull(in_full): InFull,
        value: Value,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        if decode::is_forgotten(&value) && !in_full {
            let bundle = self.still_wanted(bundle, wants);
            if !bundle.renewals.is_empty() {
                send(bundle.in_full());
                self.asked.push_back(Expected::Bundle(bundle, InFull(true)));
            }
            return;
        }
        let said = match value {
            Value::ServerError(error) => return self.refused(bundle, &error, wants, send),
            value => read(&value, bundle.renewals.len()),
        };
        let Some(said) = said else {
            return self.lose_place("the answer to many renewals makes no sense");
        };
        for ((seq, command), said) in bundle.renewals.into_iter().zip(said) {
            match said {
                Said::AskAlone => self.ask_alone(seq, command, wants, send),
                said => {
                    let waited_for = said == Said::WaitedFor;
                    self.finish(seq, Ok(Answer::Renewed { longer: None, waited_for }));
                }
            }
        }
    }

    /// The server has refused all of them, which says little of each.
    fn refused(
        &mut self,
        bundle: Bundle,
        error: &ServerError,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        match decode::code_of(error) {
            // The user may lack the right to a command that single renewals do without.
            "NOPERM" | "ERR" => self.may_bundle = false,
            "CROSSSLOT" => self.cluster.found(true),
            _ => {}
        }
        let fault = decode::refusal(error);
        for (seq, command) in bundle.renewals {
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

    /// Without those whose tokens are being released: a further round would overtake the release.
    fn still_wanted(&mut self, mut bundle: Bundle, wants: &mut dyn FnMut(u64) -> bool) -> Bundle {
        let renewals = std::mem::take(&mut bundle.renewals);
        let (wanted, rest): (Vec<_>, Vec<_>) =
            renewals.into_iter().partition(|(seq, _)| wants(*seq));
        for (seq, _) in rest {
            self.finish(seq, Err(dropped()));
        }
        Bundle { renewals: wanted, ..bundle }
    }
}

/// Whether a bundle was sent with the script's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFull(bool);
