//! How a history ends: everybody is served, everything comes to rest, and it is taken apart.

use super::{Ran, World};
use crate::domain::env::simulated;
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::executor;
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::process::SimulatedProcess;

impl World {
    /// Everybody is served and no guard is left.
    pub(super) fn rest(&mut self) {
        let served = clock::now();
        // A release that met a silent connection is sent again when the silence has been noticed.
        let silence = self.plan.longest_command_timeout();
        let pause = self.plan.longest_linger().max(silence) + SECOND;
        loop {
            let last = served.max(self.late_until).max(self.server.frozen_until);
            let last = last.max(self.nodes.troubled_until());
            // A message that is slow until then counts as a sign of life.
            let last = last.max(self.calm_since());
            if self.is_violated() || clock::now() >= last + pause {
                break;
            }
            self.pass_until(last + pause);
        }
        self.check_left_tokens();
        let jumps = self.plan.troubles.iter().map(|(_, trouble)| match trouble {
            PlannedTrouble::ServerClock { forward: false, by }
            | PlannedTrouble::NodeClock { forward: false, by, .. } => *by,
            _ => 0,
        });
        let longest = self.plan.longest() + jumps.sum::<u64>() + 2 * self.plan.apart() + 9 * SECOND;
        self.pass_until(clock::now() + longest);
        self.check_leftovers();
        let wrong = self.books.borrow().runs.wrong();
        if let Some(run) = wrong {
            self.violated(format!("a value of run {run} was seen, which did not succeed"));
        }
        for _ in 0..20 {
            let reads = self.executor.has_reader(|process| self.processes[process].is_alive);
            let are_at_rest = self.processes.iter().all(SimulatedProcess::is_at_rest);
            if self.is_violated() || are_at_rest && !reads {
                return;
            }
            self.pass_until(clock::now() + 97 * MILLI);
        }
        self.violated("something is left in a table, an index or a queue, or a task still reads");
    }

    /// The result of a history that ended with a panic. Its state is never touched again.
    pub(in crate::simulation) fn abandoned(self) -> Ran {
        let ran = self.ran();
        std::mem::forget(self);
        ran
    }

    pub(in crate::simulation) fn so_far(&self) -> (u64, u64) {
        let books = self.books.borrow();
        (books.history.steps, books.history.hash())
    }

    pub(super) fn ran(&self) -> Ran {
        let mut books = self.books.borrow_mut();
        if let Some(what) = books.violation.clone() {
            books.history.line(|_| format!("VIOLATED: {what}"));
        }
        Ran {
            messages: self.messages.clone(),
            violation: books.violation.clone(),
            steps: books.history.steps,
            hash: books.history.hash(),
            lines: books.history.to_string(),
            by_sort: books.history.by_sort,
        }
    }

    /// Takes everything apart.
    pub(in crate::simulation) fn end(mut self) -> Ran {
        let ran = self.ran();
        for process in &mut self.processes {
            process.clock.enter();
            let tasks = self.executor.remove(process.index);
            drop((tasks, std::mem::take(&mut process.corpses)));
            process.abandon();
        }
        drop((executor::sleepers(), simulated::spawned()));
        for process in std::mem::take(&mut self.processes) {
            // Within the environment of its process: in another one it would count as a copy in a
            // forked child, and would not be dropped.
            process.clock.enter();
            drop(process);
        }
        ran
    }
}
