//! The life of one lock in this process, without I/O: who waits, who holds, what to ask the server.
//!
//! A slot is given events with the time they happened at, and says what to do next as [`Act`]s. It
//! never looks at a clock, a socket or a task. All waiters of a process for one mutex share one
//! slot, so the server sees one contender; a lock that several can hold at once has a slot for each
//! acquisition.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::LockError;
use crate::clock::Moment;
use crate::demand::Demand;
use crate::engine::timers::Alarm;
use crate::hold::Hold;
use crate::store::{Command, Rival};
use crate::wait::Wait;
use contend::Contender;
use held::{Held, Yielding};

pub(crate) use held::first_fence;
pub(crate) use look::Insight;

mod contend;
mod heed;
mod held;
mod look;
#[cfg(test)]
mod tests;

/// What a slot wants done.
#[derive(Debug)]
pub(crate) enum Act<W> {
    /// Send this.
    Send(Command),
    /// Hand this hold to the waiter. When nobody takes it, release it.
    Grant(W, Arc<Hold>),
    /// Tell the waiter that it is over.
    Fail(W, LockError),
    /// See to it that a token leaves nothing on the server.
    Reap(Reap),
    /// Call `tick` at this time at the latest.
    Wake(Moment),
    /// Tell that this hold was lost.
    Lost(Arc<Hold>),
    /// Tell that another process has the lock, with the value that stands there.
    Contended(Arc<Demand>, Option<String>),
}

/// A token that must leave the server.
#[derive(Debug)]
pub(crate) struct Reap {
    /// The release.
    pub(crate) command: Command,
    /// When the server has forgotten the token by itself.
    pub(crate) until: Moment,
    /// Whether an acquisition of it may still arrive, so that one release is not enough.
    pub(crate) doubtful: bool,
    /// Whether it was asked for in the short way, so that the release may follow it there.
    pub(crate) short: bool,
    /// Who wants to know.
    pub(crate) confirm: Option<Confirm>,
}

/// Tells a releaser the outcome.
pub(crate) type Confirm = oneshot::Sender<Result<(), LockError>>;

/// What a slot needs to know of the world at the time of an event.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Moment,
    /// Whether grants are told by message.
    pub(crate) told: bool,
    /// Names this manager in tokens.
    pub(crate) manager: Arc<str>,
    /// Random, to spread what would otherwise happen at once.
    pub(crate) spread: u8,
}

/// One who waits.
#[derive(Debug)]
pub(crate) struct Waiter<W> {
    pub(crate) id: u64,
    pub(crate) handle: W,
    pub(crate) demand: Arc<Demand>,
    pub(crate) asked: Moment,
}

impl<W> Waiter<W> {
    /// When its patience ends. One who does not wait stays until the answer to one attempt.
    fn until(&self) -> Moment {
        match self.demand.wait {
            Wait::Forever | Wait::None => Moment::NEVER,
            Wait::For(limit) => self.asked.after(limit),
        }
    }

    fn is_patient(&self) -> bool {
        self.demand.wait != Wait::None
    }
}

/// One lock in this process.
#[derive(Debug)]
pub(crate) struct Slot<W> {
    waiters: VecDeque<Waiter<W>>,
    stage: Stage,
    /// Whether somebody else had it lately, so that taking it blindly is a wasted round trip.
    contended: bool,
    /// Whether somebody elsewhere waits for what we have or were granted.
    waited_for: bool,
    /// The timer that is set for it; the engine's.
    pub(crate) alarm: Option<Alarm>,
    /// Whether its timer is to be set later; the engine's as well.
    pub(crate) nursed: bool,
}

#[derive(Debug)]
enum Stage {
    /// Nobody has it here and nobody wants it.
    Idle,
    /// The waiters' token is asked for, or queued on the server.
    Contending(Contender),
    /// One of us has it.
    Held(Held),
    /// Nobody of us has it; the server decides whether the next of us or another process does.
    Yielding(Yielding),
}

impl<W> Slot<W> {
    pub(crate) fn new() -> Self {
        Self {
            waiters: VecDeque::new(),
            stage: Stage::Idle,
            contended: false,
            waited_for: false,
            alarm: None,
            nursed: false,
        }
    }

    /// Whether nothing is left to be done, so that the slot can go.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.waiters.is_empty()
    }

    /// Somebody wants the lock.
    pub(crate) fn ask(&mut self, waiter: Waiter<W>, world: &World, out: &mut Vec<Act<W>>) {
        self.notice_loss(world, out);
        if let (Stage::Held(held), false) = (&self.stage, waiter.is_patient()) {
            let busy = busy(&waiter, Some(&held.as_rival(world.now)), world.now);
            out.push(Act::Fail(waiter.handle, busy));
            return;
        }
        let (patient, until) = (waiter.is_patient(), waiter.until());
        self.waiters.push_back(waiter);
        match &mut self.stage {
            Stage::Idle => self.start(world, out),
            // What is known may be a second old: one who does not wait is owed a fresh answer.
            Stage::Contending(contender) if !patient && !contender.is_asking() => {
                self.ask_again(world, out);
            }
            Stage::Contending(_) | Stage::Held(_) | Stage::Yielding(_) => {}
        }
        if until != Moment::NEVER {
            out.push(Act::Wake(until));
        }
    }

    /// A waiter gave up. Returns whether it was still waiting.
    pub(crate) fn cancel(&mut self, id: u64, world: &World, out: &mut Vec<Act<W>>) -> bool {
        let before = self.waiters.len();
        self.waiters.retain(|waiter| waiter.id != id);
        self.abandon_if_unwanted(world, out);
        self.waiters.len() < before
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        self.fail_overdue(world, out);
        self.notice_loss(world, out);
        match &self.stage {
            Stage::Contending(contender) if contender.is_due(world.now) => {
                self.ask_again(world, out);
            }
            Stage::Held(_) => {
                self.check_if_due(world, out);
                self.renew_if_due(world, out);
            }
            Stage::Idle | Stage::Contending(_) | Stage::Yielding(_) => {}
        }
    }

    /// The next time that `tick` has something to do.
    pub(crate) fn due(&self, now: Moment) -> Moment {
        let stage = match &self.stage {
            Stage::Idle | Stage::Yielding(_) => Moment::NEVER,
            Stage::Contending(contender) => contender.due(),
            Stage::Held(held) => held.due(now),
        };
        self.waiters.iter().map(|waiter| self.end_of(waiter)).fold(stage, Moment::min)
    }

    /// Ends everything: nobody gets the lock any more, and who has it learns that it is gone.
    pub(crate) fn close(
        &mut self,
        error: &LockError,
        because: &str,
        world: &World,
        out: &mut Vec<Act<W>>,
    ) {
        for waiter in self.waiters.drain(..) {
            out.push(Act::Fail(waiter.handle, error.clone()));
        }
        self.abandon_if_unwanted(world, out);
        self.surrender(because, world, out);
        if let Stage::Yielding(_) = self.stage {
            // What is on its way is undone when its answer finds nobody.
            self.stage = Stage::Idle;
        }
    }

    #[cfg(test)]
    pub(crate) fn waits(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// When a waiter is told that it waited in vain: at the end of its patience, but not before
    /// one answer of the server, which tells busy from broken, has had its time.
    fn end_of(&self, waiter: &Waiter<W>) -> Moment {
        match &self.stage {
            Stage::Contending(contender) if contender.is_unanswered() && waiter.is_patient() => {
                waiter.until().after(waiter.demand.timeout)
            }
            _ => waiter.until(),
        }
    }

    fn fail_overdue(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        if self.waiters.iter().all(|waiter| self.end_of(waiter) > world.now) {
            return;
        }
        let mut kept = VecDeque::with_capacity(self.waiters.len());
        for waiter in std::mem::take(&mut self.waiters) {
            if self.end_of(&waiter) > world.now {
                kept.push_back(waiter);
            } else {
                let error = self.refusal(&waiter, world.now);
                out.push(Act::Fail(waiter.handle, error));
            }
        }
        self.waiters = kept;
        self.abandon_if_unwanted(world, out);
    }

    /// Tells those who wanted one attempt that this was it.
    fn fail_impatient(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        if self.waiters.iter().all(Waiter::is_patient) {
            return;
        }
        let mut kept = VecDeque::with_capacity(self.waiters.len());
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.is_patient() {
                kept.push_back(waiter);
            } else {
                let error = self.refusal(&waiter, world.now);
                out.push(Act::Fail(waiter.handle, error));
            }
        }
        self.waiters = kept;
    }

    /// Why a waiter goes without: what was last seen tells whether somebody has the lock.
    fn refusal(&self, waiter: &Waiter<W>, now: Moment) -> LockError {
        match &self.stage {
            Stage::Contending(contender) => contender.refusal(waiter, now),
            Stage::Held(held) => busy(waiter, Some(&held.as_rival(now)), now),
            Stage::Idle | Stage::Yielding(_) => busy(waiter, None, now),
        }
    }
}

/// The error of a waiter that somebody else kept waiting.
fn busy<W>(waiter: &Waiter<W>, rival: Option<&Rival>, now: Moment) -> LockError {
    let holder = rival.and_then(Rival::holder).map(Box::new);
    let key = waiter.demand.key.to_string();
    LockError::Busy { key, waited: now.since(waiter.asked), holder }
}
