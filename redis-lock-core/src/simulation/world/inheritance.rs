//! What must be true of holds that are given away.

use std::rc::Rc;
use std::sync::Arc;

use super::World;
use crate::simulation::books::{CallRecord, Ended};
use crate::simulation::executor::Home;
use crate::simulation::plan::PlannedCall;
use crate::simulation::{clock, full_key};

impl World {
    /// Numbers all planned calls, also those of heirs, by which they find what is given to them.
    pub(super) fn number_calls(&mut self) {
        let mut number = 0;
        for planned in &mut self.plan.planned_calls {
            let mut next = Some(planned);
            while let Some(planned) = next {
                number += 1;
                planned.number = number;
                next = planned.heir.as_deref_mut();
            }
        }
    }

    /// Lets each heir wait for what it is to be given.
    pub(super) fn add_heirs(&mut self) {
        for planned in self.plan.planned_calls.clone() {
            let mut giver = planned;
            while let Some(heir) = giver.heir.take() {
                let caller = self.caller(heir.process, &self.processes[heir.process]);
                let task = caller.inherit(giver.number, PlannedCall::clone(&heir));
                self.executor.spawn(heir.process, Home::Caller, task);
                giver = *heir;
            }
        }
    }

    /// A process begins to shut down: what it has adopted is not left behind, and others that have
    /// the same token lose it.
    pub(super) fn end_heritage(&mut self, process: usize) {
        let mut books = self.books.borrow_mut();
        let of_it = books.holds.iter().filter(|note| note.process == process);
        let of_it: Vec<_> = of_it.filter(|note| self.is_valid(note)).cloned().collect();
        for note in of_it {
            let token = Arc::clone(note.hold.token.wire());
            if books.heritage.is_given(&token) {
                books.heritage.leaves_with.insert(token, process);
            }
        }
        for token in &books.heritage.copied {
            self.server.note(token).is_excused = true;
        }
    }

    /// A hold that an heir has released is gone, or the heir knows that it may come back.
    pub(super) fn check_heritage(&self) {
        let books = Rc::clone(&self.books);
        for (key, token) in self.server.present(clock::now()) {
            let ended_by = books.borrow().heritage.ended_by.get(token).copied();
            let Some(process) = ended_by.map(|it| &self.processes[it]) else { continue };
            if !process.is_alive || process.is_closing {
                continue;
            }
            let (in_machines, leaving) = process.core.tokens();
            if !in_machines.contains(token) && !leaving.contains(token) {
                let what = "has released what it adopted, and forgotten";
                return self.violated(format!("p{} {what} {token} at {key}", process.index));
            }
        }
    }

    /// A shutdown without trouble leaves nothing of what the process had adopted.
    pub(super) fn check_left_heritage(&self, process: usize) {
        let books = Rc::clone(&self.books);
        for (key, token) in self.server.present(clock::now()) {
            if books.borrow().heritage.leaves_with.get(token) == Some(&process) {
                return self.violated(format!("adopted {token} is left at {key} by a shutdown"));
            }
        }
    }

    /// An adoption succeeds when its token has the lock, and only then.
    pub(super) fn check_adopted(&self, call: &CallRecord, how: &Ended) {
        let Some(token) = &call.token else { return };
        let is_given = self.books.borrow().heritage.is_given(token);
        if matches!(how, Ended::Good) && !is_given {
            return self.violated(format!("call {} adopted what was not given away", call.number));
        }
        let now = clock::now();
        let has = |key: &usize| {
            self.server.lease_end(&full_key(*key), token).is_some_and(|end| end > now)
        };
        // A hold whose token is in doubt may have come back since.
        let is_doubtful = self.server.tokens.get(token).is_some_and(|note| note.is_doubtful);
        if how.is_taken() && is_given && !is_doubtful && call.keys.iter().all(has) {
            self.violated(format!("call {} could not adopt what {token} has", call.number));
        }
    }
}
