//! What a node may have of tokens that were given up while no answer of it came.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::demand::whole_millis;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Command, Verb};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Below this many, nothing looks for those that are over.
const MIN_SWEEP: usize = 1024;

/// Tokens of which a node may have something, by what was sent to it and never answered.
#[derive(Debug, Default)]
pub(super) struct Owed {
    debts: BTreeMap<Arc<str>, Debt>,
    /// At how many to look for those that are over.
    sweep_at: usize,
}

#[derive(Debug)]
struct Debt {
    names: Names,
    kind: Kind,
    /// Until when it may be executed, and last.
    until: Moment,
    /// Whether it is to be released.
    is_given_up: bool,
}

impl Owed {
    /// An acquisition, a renewal or a release of this token may be executed, or may not.
    pub(super) fn doubt(
        &mut self,
        token: &Arc<str>,
        (names, kind): (&Names, Kind),
        until: Moment,
        is_given_up: bool,
    ) {
        let debt = self.debts.entry(Arc::clone(token)).or_insert_with(|| Debt {
            names: names.clone(),
            kind,
            until,
            is_given_up,
        });
        debt.until = debt.until.max(until);
        debt.is_given_up |= is_given_up;
        if self.debts.len() > self.sweep_at {
            self.forget_past(Moment::now());
            self.sweep_at = (self.debts.len() * 2).max(MIN_SWEEP);
        }
    }

    fn forget_past(&mut self, now: Moment) {
        self.debts.retain(|_, debt| debt.until > now);
    }

    /// Whether the token is wanted from now on, or not any more.
    pub(super) fn give_up(&mut self, token: &str, is_given_up: bool) {
        if let Some(debt) = self.debts.get_mut(token) {
            debt.is_given_up = is_given_up;
        }
    }

    /// A release of the token was answered that refuses whatever comes later.
    pub(super) fn settle(&mut self, token: &str) {
        if self.debts.get(token).is_some_and(|debt| debt.is_given_up) {
            self.debts.remove(token);
        }
    }

    /// For how long a release has to refuse the token.
    pub(super) fn tombstone(&self, token: &str, now: Moment) -> Option<Duration> {
        let rest = self.debts.get(token)?.until.since(now);
        (!rest.is_zero()).then(|| whole_millis(rest))
    }

    /// The releases that a new connection begins with.
    pub(super) fn releases(&mut self, now: Moment) -> Vec<Command> {
        self.forget_past(now);
        let given_up = self.debts.iter().filter(|(_, debt)| debt.is_given_up);
        given_up.map(|(token, debt)| release(token, &debt.names, debt.kind)).collect()
    }
}

/// The release of a token that was given up.
pub(super) fn release(token: &Arc<str>, names: &Names, kind: Kind) -> Command {
    let verb =
        Verb::Release { token: Arc::clone(token), waited_for: true, keep: None, tombstone: None };
    Command { names: names.clone(), kind, verb, timeout: TIMEOUT }
}
