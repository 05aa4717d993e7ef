//! A server that another one has replaced: it wakes after that, and answers what it was asked before.
//! And replicas that don't confirm in time what they are counted for.

use redis::{Arg, Value};

use super::World;
use crate::domain::fault::Fault;
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::pipe::Item;
use crate::simulation::plan::HistoryPlan;
use crate::simulation::planned_trouble::Refusal;
use crate::simulation::transacting::error;
use crate::store::redis::verdict_by;
use crate::store::{Answer, Command, Verb};

/// A command that arrives later than this is answered by a server that was replaced meanwhile. The
/// addition is for clocks that run slowly.
const REPLACED: u64 = 1_100 * MILLI;

impl HistoryPlan {
    /// The history of a seed on servers that are replaced when they don't answer in time. In every fourth
    /// one sentinels say by which.
    pub(in crate::simulation) fn with_successors(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        plan.path.replaces = true;
        // Many answers are late, and time limits are long enough for them to arrive.
        plan.path.slow = plan.path.slow.max(40);
        for process in &mut plan.processes {
            process.command_timeout = process.command_timeout.max(2 * SECOND);
        }
        plan.path.unconfirmed = [0, 5, 20][(seed % 3) as usize];
        plan.path.has_replicas = plan.path.unconfirmed > 0;
        if seed.is_multiple_of(4) {
            plan.have_sentinels();
        }
        plan
    }
}

impl World {
    /// Whether a server answers that was replaced meanwhile: with "ok", of which its successor knows
    /// nothing.
    pub(super) fn is_answered_too_late(
        &mut self,
        index: usize,
        seq: u64,
        sent: u64,
        command: &Command,
    ) -> bool {
        let can_be = self.plan.path.replaces || !self.nodes.serves(self.links[index].node);
        let is_replaced = can_be && clock::now() > sent + REPLACED;
        let Some(answer) = ok(&command.verb).filter(|_| is_replaced) else { return false };
        if let (Verb::Take { .. } | Verb::Acquire(_), Some(token)) =
            (&command.verb, command.verb.token())
        {
            self.server.note(token).is_doubtful = true;
        }
        let mut books = self.books.borrow_mut();
        books.history.step(45, seq);
        books.history.line(|names| {
            let shown = crate::simulation::shown::command(command, names);
            format!("a server that was replaced says ok to q{seq} {shown}")
        });
        drop(books);
        self.reply(index, Item::Answer(seq, Ok(answer)));
        true
    }
}

impl World {
    /// The answer to what was executed, if a replica confirms it where one is wanted.
    pub(super) fn confirmed(
        &mut self,
        (index, seq): (usize, u64),
        command: &Command,
        answer: Result<Answer, Fault>,
    ) -> Result<Answer, Fault> {
        let is_counted =
            matches!(command.verb, Verb::Take { .. } | Verb::Acquire(_) | Verb::Renew { .. });
        let is_granted =
            matches!(answer, Ok(Answer::Held { .. } | Answer::Renewed { .. } | Answer::Done));
        if !(self.plan.path.has_replicas && is_counted && is_granted) {
            return answer;
        }
        let is_short = self.chance(92, index as u64, seq) % 100 < self.plan.path.unconfirmed;
        let verdict = self.wait_for_replica(is_short && clock::now() < self.plan.calm_at);
        if let (Err(_), Verb::Take { .. } | Verb::Acquire(_), Some(token)) =
            (&verdict, &command.verb, command.verb.token())
        {
            self.server.note(token).is_doubtful = true;
        }
        verdict.and(answer)
    }

    /// A round of waiting, as it is sent to real servers.
    fn wait_for_replica(&mut self, is_short: bool) -> Result<(), Fault> {
        let is_full = self.server.refused_by(clock::now()).any(|it| it == Refusal::OutOfMemory);
        let has_marker = &mut self.server.has_marker;
        verdict_by(|cmd| match cmd.args_iter().next() {
            Some(Arg::Simple(b"SET")) if is_full => error("OOM"),
            Some(Arg::Simple(b"SET")) if std::mem::replace(has_marker, true) => Value::Nil,
            Some(Arg::Simple(b"SET")) => Value::Okay,
            Some(Arg::Simple(b"PEXPIRE")) => Value::Int(i64::from(*has_marker)),
            _ => Value::Int(i64::from(!is_short)),
        })
    }
}

/// The answer of a server that executes the command.
fn ok(verb: &Verb) -> Option<Answer> {
    match verb {
        Verb::Acquire(_) => Some(Answer::Held { fence: None, slot: None }),
        Verb::Renew { .. } => Some(Answer::Renewed { longer: None, waited_for: false, slot: None }),
        Verb::Take { .. } | Verb::Check { .. } | Verb::Release { .. } => Some(Answer::Done),
        _ => None,
    }
}
