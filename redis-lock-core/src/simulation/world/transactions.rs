//! A server that is used without scripts, as the engine sees it: each question is a transaction of
//! its own, whose outcome may be unknown while the connection goes on. It may be executed later,
//! unless somebody has changed meanwhile what it watches.

use super::{World, WorldEvent};
use crate::domain::error::{Fault, FaultClass};
use crate::simulation::clock::{self, MILLI};
use crate::simulation::network::Item;
use crate::simulation::plan::{HistoryPlan, Sort};
use crate::simulation::server::SimulatedServer;
use crate::store::{Command, Verb};

/// How long after the engine has given a transaction up the server may still execute it.
const LATEST: u64 = 3_000;

/// Of a hundred transactions, so many are late.
const LATE: u64 = 12;

/// Each waits for the one before at its key, so the shortest leases have to last for several.
const LATENCY: u64 = 15 * MILLI;

impl HistoryPlan {
    /// The history of a seed on a server without scripts: mutexes alone, each by itself.
    pub(in crate::simulation) fn by_transactions(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        plan.path.late_transactions = LATE;
        plan.path.latency = plan.path.latency.min(LATENCY);
        plan.keys.fill(Sort::Mutex);
        for planned in &mut plan.planned_calls {
            planned.keys.truncate(1);
        }
        plan
    }
}

impl SimulatedServer {
    /// What a transaction for this command watches, as it stands now.
    fn watched(&self, command: &Command) -> String {
        let entry = self.state.entries.get(command.names.main());
        match command.verb {
            Verb::Acquire(_) => format!("{entry:?}"),
            _ => format!("{:?}", entry.map(|entry| &entry.holders)),
        }
    }
}

impl World {
    pub(super) fn is_without_scripts(&self) -> bool {
        self.plan.path.late_transactions > 0
    }

    /// Whether nobody learns what becomes of a command that has arrived; then it is executed now or
    /// later, or never.
    pub(super) fn is_given_up(&mut self, index: usize, seq: u64, command: &Command) -> bool {
        let (now, chance) = (clock::now(), self.chance(91, index as u64, seq));
        let is_transaction = matches!(
            command.verb,
            Verb::Acquire(_) | Verb::Renew { .. } | Verb::Check { .. } | Verb::Release { .. }
        );
        let is_late = chance % 100 < self.plan.path.late_transactions;
        if !is_transaction || !is_late || now >= self.plan.calm_at {
            return false;
        }
        let process = self.links[index].process;
        if let (Verb::Acquire(_), Some(token)) = (&command.verb, command.verb.token()) {
            self.server.note(token).is_doubtful = true;
        }
        match chance >> 8 & 3 {
            0 => {}
            1 => drop(self.execute(process, 0, command)),
            _ => {
                let at = now + (chance >> 16) % LATEST * MILLI;
                let watched = self.server.watched(command);
                self.late_until = self.late_until.max(at);
                self.at(at, WorldEvent::Exec(process, Box::new(command.clone()), watched));
            }
        }
        let what = "the server did not say in time what became of a transaction";
        self.reply(index, Item::Answer(seq, Err(Fault::new(FaultClass::Unknown, what))));
        true
    }

    /// An `EXEC` arrives whose transaction was given up.
    pub(super) fn exec(&mut self, process: usize, command: &Command, watched: &str) {
        let is_same = self.server.watched(command) == watched;
        let answer = is_same.then(|| self.execute(process, 0, command).0);
        let mut books = self.books.borrow_mut();
        books.history.step(44, process as u64);
        books.history.line(|names| {
            let command = crate::simulation::shown::command(command, names);
            match &answer {
                None => format!("server: late EXEC of p{process}: {command}: aborted"),
                Some(answer) => {
                    let answer = crate::simulation::shown::answer(answer, names);
                    format!("server: late EXEC of p{process}: {command}: {answer}")
                }
            }
        });
    }
}
