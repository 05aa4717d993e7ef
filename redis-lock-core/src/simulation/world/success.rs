//! What is done once: who hears of it, and what the server has then.

use super::World;
use crate::domain::mark::Mark;
use crate::simulation::books::{CallRecord, Ended};
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::{clock, full_key};

impl World {
    /// A success that is confirmed is known to the server, and one that has its mark was not lost.
    pub(super) fn check_completed(&self, call: &CallRecord, how: &Ended) {
        let Some(token) = &call.token else { return };
        let note = self.server.tokens.get(token);
        let is_marked = note.is_some_and(|note| note.is_marked);
        let is_excused = note.is_some_and(|note| note.is_excused)
            || self.plan.path.replaces
            || self.server.has_forgotten
            || self.books.borrow().heritage.is_given(token);
        let now = self.process_now(call.process);
        if is_excused || call.known_until.is_none_or(|until| until <= now) {
            return;
        }
        self.check_value(call, token);
        if matches!(how, Ended::Good) && !is_marked {
            self.violated(format!("call {} has succeeded, and no server knows of it", call.number));
        }
        if how.is_taken() && is_marked && call.keys.iter().any(|key| self.is_known(*key, token)) {
            self.violated(format!("call {} has left its mark, and got `Lost`", call.number));
        }
    }

    /// A mark stands with the value that was stored with it.
    fn check_value(&self, call: &CallRecord, token: &str) {
        let Some(run) = self.books.borrow().values.get(token).copied() else { return };
        let is_shifted = |(_, trouble): &(u64, PlannedTrouble)| {
            matches!(trouble, PlannedTrouble::ServerClock { .. } | PlannedTrouble::NodeClock { .. })
        };
        // Of a transaction's keys, the simulation has no value.
        if self.server.by_transactions.is_some() || self.plan.troubles.iter().any(is_shifted) {
            return;
        }
        for key in call.keys.iter().filter(|key| self.is_known(**key, token)) {
            let entry = self.server.state.entries.get(&full_key(*key));
            let stored = entry.and_then(|entry| entry.value.as_ref());
            if stored.is_none_or(|(value, _)| value.stored_by(token) != Ok(&*run.to_string())) {
                self.violated(format!("call {run} has left its mark without its value"));
            }
        }
    }

    /// Whether the mark of a token stands at a key.
    fn is_known(&self, key: usize, token: &str) -> bool {
        let stands = self.server.holder(&full_key(key), clock::now());
        let mark = stands.and_then(|value| Mark::read_done(&value));
        mark.is_some_and(|mark| **mark.token.wire() == *token)
    }

    /// "Done" means that a mark stood there during the call.
    pub(super) fn check_done(&self, call: &CallRecord) {
        let stood = |key: &usize| {
            let key = full_key(*key);
            let mut stays = self.server.stays_since(&key, call.began);
            stays.any(|stay| Mark::read_done(&stay.token).is_some())
        };
        if !call.keys.iter().any(stood) {
            self.violated(format!("call {} got `Done`, and it was not done", call.number));
        }
    }
}
