//! What callers did and got. The invariants are checked against this and the server's record.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::clock;
use super::heritage::Heritage;
use super::history::History;
use crate::domain::clock::Moment;
use crate::lock::hold::Hold;
use crate::{LockError, LossReason};

/// What a caller asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Acquire,
    Release,
    Verify,
    Extend,
    Downgrade,
    Shutdown,
    Force,
    Adopt,
    Complete,
}

/// A call that has not ended, or has ended just now.
#[derive(Clone, Debug)]
pub(super) struct CallRecord {
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) process: usize,
    pub(super) keys: Vec<usize>,
    pub(super) token: Option<Arc<str>>,
    pub(super) began: u64,
    /// How long it may take, by the clock of the process, while that runs.
    pub(super) bound: Option<u64>,
    /// How long one command for its lock may take.
    pub(super) timeout: Option<u64>,
    /// How long the process had stood still in all when the call began.
    pub(super) stalled: u64,
    /// No other caller of the process wanted the same key during the call.
    pub(super) is_alone: bool,
    /// The process had a guard of the same key when the call ended.
    pub(super) met_guard: bool,
    /// The lease ran when the call began.
    pub(super) was_valid: bool,
    /// Its guard was adopted.
    pub(super) is_adopted: bool,
    /// Until when its success is remembered, by the clock of its process.
    pub(super) known_until: Option<Moment>,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Good,
    Dropped,
    Failed(LockError),
}

/// A guard of a client.
#[derive(Debug)]
pub(super) struct HoldNote {
    pub(super) process: usize,
    pub(super) keys: Vec<usize>,
    pub(super) hold: Arc<Hold>,
    pub(super) first_deadline: Moment,
    /// It must not be lengthened.
    pub(super) is_fixed: bool,
    pub(super) is_given_up: Cell<bool>,
    /// What its process asked before it was given up has a smaller number.
    pub(super) given_up_by: Cell<u64>,
    pub(super) loss_seen: Cell<bool>,
}

#[derive(Default)]
pub(super) struct Books {
    pub(super) history: History,
    pub(super) calls: Vec<CallRecord>,
    pub(super) ended: Vec<(CallRecord, Ended)>,
    pub(super) holds: Vec<Rc<HoldNote>>,
    /// Guards that were got since the last look.
    pub(super) granted: Vec<Rc<HoldNote>>,
    /// Guards that were given up since the last look.
    pub(super) given_up: Vec<(Rc<HoldNote>, bool)>,
    /// For how long each process was held up.
    pub(super) stalled: Vec<u64>,
    pub(super) violation: Option<String>,
    pub(super) number: u64,
    pub(super) heritage: Heritage,
    pub(super) runs: SharedRuns,
    /// The calls that have stored a value, by their tokens.
    pub(super) values: BTreeMap<Arc<str>, u64>,
}

impl Books {
    pub(super) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn begin(&mut self, mut call: CallRecord) -> u64 {
        self.number += 1;
        call.number = self.number;
        call.began = clock::now();
        call.stalled = self.stalled[call.process];
        if call.what == What::Acquire {
            for other in self.calls.iter_mut() {
                if other.competes_with(&call) {
                    (other.is_alone, call.is_alone) = (false, false);
                }
            }
        }
        let CallRecord { number, what, process, .. } = call;
        self.history.step(10 + what as u64, process as u64);
        let keys = call.keys.clone();
        self.history.line(|_| format!("p{process} call {number}: {what:?} of {keys:?}"));
        self.calls.push(call);
        number
    }

    pub(super) fn end(&mut self, number: u64, ended: Ended) {
        let Some(index) = self.calls.iter().position(|call| call.number == number) else { return };
        let mut call = self.calls.remove(index);
        call.met_guard = self.holds.iter().any(|note| {
            note.process == call.process && note.keys.iter().any(|key| call.keys.contains(key))
        });
        let process = call.process;
        self.history.step(20 + call.what as u64, ended.code());
        self.history.line(|_| format!("p{process} call {number} ended: {}", ended.shown()));
        self.ended.push((call, ended));
    }

    /// A call has got the value of another one.
    pub(super) fn got_value(&mut self, call: u64, process: usize, value: &str) {
        let began = self.calls.iter().find(|it| it.number == call).map_or(0, |it| it.began);
        self.history.line(|_| format!("p{process} call {call} has got the value {value}"));
        if let Err(what) = self.runs.got(value, (process, began)) {
            self.violated(format!("call {call} {what}"));
        }
    }

    /// A guard is about to be given up.
    pub(super) fn give_up(&mut self, note: &Rc<HoldNote>) {
        if note.is_given_up.replace(true) {
            return;
        }
        let probe = |call: &CallRecord| {
            call.what == What::Acquire
                && call.process == note.process
                && call.keys.iter().any(|key| note.keys.contains(key))
        };
        let is_alone = !self.calls.iter().any(probe);
        self.holds.retain(|other| !Rc::ptr_eq(other, note));
        self.given_up.push((Rc::clone(note), is_alone));
        let token = Arc::clone(note.hold.token.wire());
        let process = note.process;
        self.history.step(30, process as u64);
        self.history.line(|names| format!("p{process} gives up {}", names.name(&token)));
    }
}

impl CallRecord {
    pub(super) fn new(what: What, process: usize, keys: Vec<usize>) -> Self {
        Self {
            number: 0,
            what,
            process,
            keys,
            token: None,
            began: 0,
            bound: None,
            timeout: None,
            stalled: 0,
            is_alone: true,
            met_guard: false,
            was_valid: true,
            is_adopted: false,
            known_until: None,
        }
    }

    fn competes_with(&self, other: &Self) -> bool {
        self.what == What::Acquire
            && self.process == other.process
            && self.keys.iter().any(|key| other.keys.contains(key))
    }
}

impl Ended {
    pub(super) fn of<T>(outcome: Option<&Result<T, LockError>>) -> Self {
        match outcome {
            None => Self::Dropped,
            Some(Ok(_)) => Self::Good,
            Some(Err(error)) => Self::Failed(error.clone()),
        }
    }

    fn code(&self) -> u64 {
        match self {
            Self::Good => 0,
            Self::Dropped => 1,
            Self::Failed(LockError::Busy { .. }) => 2,
            Self::Failed(LockError::Lost { .. }) => 3,
            Self::Failed(LockError::Backend { .. }) => 4,
            Self::Failed(_) => 5,
        }
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self::Good => "ok".into(),
            Self::Dropped => "dropped".into(),
            Self::Failed(error) => error.to_string(),
        }
    }

    /// Why the server, not this side's clock, ended the hold, where a call says so.
    pub(super) fn is_taken(&self) -> bool {
        let Self::Failed(LockError::Lost { reason, .. }) = self else { return false };
        matches!(reason, LossReason::Overwritten { .. } | LossReason::Removed { .. })
    }

    pub(super) fn is_backend(&self) -> bool {
        matches!(self, Self::Failed(LockError::Backend { .. }))
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Failed(LockError::Done { .. }))
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Failed(LockError::Busy { .. }))
    }
}

/// The bodies that have shared their values, and who got these.
#[derive(Default)]
pub(super) struct SharedRuns {
    runs: BTreeMap<u64, SharedRun>,
}

#[derive(Default)]
struct SharedRun {
    process: usize,
    /// When its process knew that it had ended.
    ended: u64,
    /// How its call ended.
    outcome: Option<Ended>,
    /// When each process has got its value first.
    got: BTreeMap<usize, u64>,
    /// Whether a call of its own process has.
    at_home: bool,
}

impl SharedRuns {
    pub(super) fn begin(&mut self, run: u64, process: usize) {
        self.runs.insert(run, SharedRun { process, ended: clock::now(), ..SharedRun::default() });
    }

    pub(super) fn end(&mut self, run: u64, outcome: &Ended) {
        self.runs.entry(run).or_default().outcome = Some(outcome.clone());
    }

    /// A call of a process, which began then, has got a value.
    pub(super) fn got(
        &mut self,
        value: &str,
        (process, began): (usize, u64),
    ) -> Result<(), String> {
        let number = value.parse().map_err(|_| format!("got the value {value:?}"))?;
        let run = self
            .runs
            .get_mut(&number)
            .ok_or_else(|| format!("got the value of no run: {value}"))?;
        let is_home = run.process == process;
        run.at_home |= is_home;
        let known = if is_home { Some(run.ended) } else { run.got.get(&process).copied() };
        run.got.entry(process).or_insert_with(clock::now);
        match known {
            Some(known) if known < began => Err(format!(
                "came after its process knew that run {number} had ended, and got its value"
            )),
            _ => Ok(()),
        }
    }

    /// A run of which a value was seen, and which had not succeeded.
    pub(super) fn wrong(&self) -> Option<u64> {
        let is_wrong = |run: &SharedRun| match &run.outcome {
            Some(Ended::Good) => false,
            Some(Ended::Failed(error)) if error.is_lost() => !run.got.is_empty(),
            _ => run.at_home,
        };
        self.runs.iter().find(|(_, run)| is_wrong(run)).map(|(number, _)| *number)
    }
}
