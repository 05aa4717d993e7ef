//! The release of one lock in the two round trips that it takes when nothing is unusual.
//!
//! It has no I/O: whoever has the wire sends and reads for it, with no task in between. It decides
//! nothing, either: what is read, decided and written is that of every transaction. Whatever needs
//! more than these two round trips is left to the task that executes transactions.

use redis::{Cmd, Value};

use super::batch::BatchKind;
use super::plan::{Decision, DecisionTerms, ReadPlan, decide};
use super::run::{Executed, begin, executed, opened};
use super::snapshot::Snapshot;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::store::{Answer, Command, Verb};

/// A release under way.
pub(super) struct LoneRelease {
    seq: u64,
    command: Command,
    begun: Moment,
    round_trip: RoundTrip,
    replies: Vec<Value>,
    /// How many replies the round trip has.
    expected: usize,
}

enum RoundTrip {
    /// The lock is watched and read.
    Reading(ReadPlan, DecisionTerms),
    /// The changes were sent. This is the answer if they are executed.
    Writing(Answer),
}

/// What follows from a reply.
pub(super) enum NextStep {
    /// More replies are to come.
    Wait,
    Send(Vec<Cmd>),
    Over(LoneOutcome, LineAfter),
}

pub(super) enum LoneOutcome {
    Done(Result<Answer, Fault>),
    /// Nothing was changed, and this is to be executed in the usual way.
    Unusual(Command),
}

/// What is left on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineAfter {
    Nothing,
    OpenTransaction,
    /// Nobody knows.
    Unclear,
}

impl LoneRelease {
    /// Whether a command is of this sort: it releases a lock that nobody is known to wait for.
    pub(super) fn suits(command: &Command) -> bool {
        BatchKind::of(command) == Some(BatchKind::Releases)
    }

    /// Begins it with these commands.
    pub(super) fn begin(seq: u64, command: Command, terms: DecisionTerms) -> (Self, Vec<Cmd>) {
        let plan = ReadPlan::of(&command, &terms);
        let reads = plan.scope.reads(&command.names, &plan.tombstones, terms.dialect);
        let cmds = begin(&plan.watch, reads);
        let (begun, expected) = (Moment::now(), cmds.len());
        let round_trip = RoundTrip::Reading(plan, terms);
        let replies = Vec::with_capacity(expected);
        (Self { seq, command, begun, round_trip, replies, expected }, cmds)
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn begun(&self) -> Moment {
        self.begun
    }

    /// When its time is over.
    pub(super) fn due(&self) -> Moment {
        self.begun.after(self.command.timeout)
    }

    /// Whether the server may have executed it.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.round_trip, RoundTrip::Writing(_))
    }

    /// Takes the next reply.
    pub(super) fn take(&mut self, reply: Value) -> NextStep {
        self.replies.push(reply);
        if self.replies.len() < self.expected {
            return NextStep::Wait;
        }
        let replies = std::mem::take(&mut self.replies);
        match &self.round_trip {
            RoundTrip::Reading(plan, terms) => match self.read(plan, terms, replies) {
                Ok(Decision::Write { answer, writes, messages })
                    if !writes.is_empty() && messages.is_empty() =>
                {
                    let mut cmds = writes;
                    cmds.push(redis::cmd("EXEC"));
                    self.round_trip = RoundTrip::Writing(answer);
                    self.expected = cmds.len();
                    NextStep::Send(cmds)
                }
                Ok(Decision::ReadAll) => self.unusual(true, LineAfter::OpenTransaction),
                Ok(_) => self.unusual(false, LineAfter::OpenTransaction),
                // It is refused for the same reason in the usual way, which says so.
                Err(_) => self.unusual(false, LineAfter::Unclear),
            },
            RoundTrip::Writing(answer) => match executed(replies) {
                Executed::Done(failed) => {
                    let outcome = failed.map_or_else(|| Ok(answer.clone()), Err);
                    NextStep::Over(LoneOutcome::Done(outcome), LineAfter::Nothing)
                }
                Executed::Aborted | Executed::Refused(..) => {
                    self.unusual(false, LineAfter::Nothing)
                }
                Executed::Unclear(fault) => {
                    NextStep::Over(LoneOutcome::Done(Err(fault)), LineAfter::Unclear)
                }
            },
        }
    }

    fn read(
        &self,
        plan: &ReadPlan,
        terms: &DecisionTerms,
        replies: Vec<Value>,
    ) -> Result<Decision, Fault> {
        let mut answers = opened(true, replies)?;
        let snapshot = Snapshot::read(plan.scope, &plan.tombstones, terms.dialect, &mut answers)?;
        Ok(decide(&self.command, &snapshot, terms))
    }

    fn unusual(&self, read_all: bool, after: LineAfter) -> NextStep {
        NextStep::Over(LoneOutcome::Unusual(self.usual(read_all)), after)
    }

    /// The command for the usual way, within the time that is left.
    pub(super) fn usual(&self, read_all: bool) -> Command {
        let mut command = self.command.clone();
        command.timeout = self.due().since(Moment::now());
        if let Verb::Release { waited_for, .. } = &mut command.verb {
            // The value may have a mark, so that the queue has to be read.
            *waited_for |= read_all;
        }
        command
    }
}
