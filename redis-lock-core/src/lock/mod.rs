//! The state machine of one lock in this process, without I/O: who waits, who holds, what to ask
//! the server.
//!
//! A [`Machine`] is given events with their times, and returns [`Effects`] that say what to do.
//! Clock, socket and randomness are outside. All waiters of a process for one mutex share a
//! machine, so the server sees one contender. For a lock that several can hold, each acquisition
//! has a separate machine.
//!
//! ```text
//!            ask                    answered "held"
//!   Idle ------------> Contending ------------------> Held --+  renewed; passed on to the next
//!    ^                  |  ^   |                       | ^---+  waiter while the turn runs
//!    | nobody waits     |  |   +- busy, refused,       |
//!    | any more         |  |      unknown: ask again   |
//!    +------------------+  +---------------------------+  turn over, or lost, and somebody waits
//!    ^                                                 |
//!    +-------------------------------------------------+  released or lost, and nobody waits
//!    ^                                                 |  released, and it may linger
//!    +---------------------- Kept <--------------------+  (and back to Held when asked again)
//! ```
//!
//! Two rules are the basis of the proof that no two guards are valid at once:
//!
//! - A machine has at most one open [`Question`], and accepts only its outcome, for the lease that
//!   this question asked for. Any other outcome belongs to a question that was dropped, whose token
//!   is being released.
//! - An [`Attempt`], which contains a token, is moved and never copied. It leaves a machine as a
//!   [`Reap`], and later entries in the ordered queue of its place can't overtake it.

mod attempt;
mod contend;
mod effects;
mod failing;
mod held;
pub(crate) mod hold;
mod hold_life;
mod local_view;
mod newest;
mod question;
mod reap;
mod release;
mod share;
#[cfg(test)]
pub(crate) mod tests;
mod timing;
mod waiters;

pub(crate) use attempt::{Attempt, OnServer};
pub(crate) use effects::{Effects, Later, Outgoing};
pub(crate) use failing::Crowd;
pub(crate) use local_view::{Heard, LineStanding, LineView, LocalView};
pub(crate) use question::{Confirm, Outcome, Question, Wants};
pub(crate) use reap::{Confirmation, Next, PendingReleases, Reap, lost_to};
pub(crate) use release::ended;
pub(crate) use waiters::{Waiters, WaitingCall};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::lease;
use crate::domain::status::IdleEnd;
use crate::lock::hold::Hold;
use crate::store::{Acquire, Command, Verb};
use crate::{LockError, Token, Wait};
use contend::Contending;
use effects::Moved;
use held::Held;
use question::{About, Askers, Open};
use release::{KeptLease, LapsedHold};
use share::SharingHold;
use waiters::busy;

/// The environment of a machine at the time of an event: its inputs, and the list of its effects.
pub(crate) struct Env<'a, W> {
    pub(crate) now: Moment,
    /// Whether grants are announced by messages.
    pub(crate) hints: bool,
    /// The name of this manager, which is part of tokens.
    pub(crate) manager: &'a Arc<str>,
    /// A random number, to spread what would otherwise happen at the same time.
    pub(crate) spread: u8,
    /// Whether the leases of the key may linger.
    pub(crate) lingers: bool,
    /// What a call finds that comes now.
    pub(crate) line: LineView,
    /// How many other calls wait for the key in all its machines; zero unless the call that joins, or that the
    /// server refuses, has a limit for that.
    pub(crate) waiting: usize,
    /// When the server of its key has last answered any question, as far as that says something of the open one.
    pub(crate) answered: Moment,
    pub(crate) numbers: &'a AtomicU64,
    pub(crate) pending: &'a PendingReleases,
    /// The id of the process that holds belong to.
    pub(crate) process: u32,
    pub(crate) effects: &'a mut Effects<W>,
}

impl<W> Env<'_, W> {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The offset of the grid of points in time at which this manager does things together.
    fn phase(&self) -> u64 {
        let digits =
            self.manager.as_bytes().last_chunk().map_or(0, |last| u32::from_le_bytes(*last));
        // Multiplied, because only some bits of the digits differ.
        u64::from(digits).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }

    /// An attempt with a fresh token for a demand. Newer calls may have come since the first one; an attempt that may
    /// end no others neither ends them nor is ended by them.
    fn attempt(&self, demand: &Demand, may_end_others: bool) -> Attempt {
        let (manager, label, terms) = (self.manager, &demand.terms.label, &demand.terms);
        let of = |token| Attempt::of(token, demand, self.now);
        match (terms.ttl, terms.linger) {
            (None, _) => of(Token::lasting(manager, label)),
            // Without messages no client could ask for the idle lease, so it does not linger.
            (Some(_), Some(_)) if self.hints && self.lingers => {
                of(Token::lingering(manager, label)).lingering()
            }
            (Some(_), _) if terms.newest && may_end_others => of(Token::newest(manager, label)),
            (Some(_), _) => of(Token::fresh(manager, label)),
        }
    }
}

/// One lock in this process. `on_*` handles what comes in: outcomes, messages, news of the connection.
#[derive(Debug)]
pub(crate) struct Machine<W> {
    waiters: Waiters<W>,
    stage: Stage,
    /// The question without an outcome. It is about the attempt of the stage.
    open: Option<Open>,
    /// Whether another process had the lock lately, so that trying `SET NX` first would waste a
    /// round trip.
    contended: bool,
    /// Whether another process waits for the lock.
    waited_for: bool,
    /// When the last question was sent that the server has answered, whatever the answer was.
    heard: Moment,
    /// When a subscriber was last told that a call waits for long.
    warned: Moment,
    /// Holds that have ended, and whose tokens stay on the server for their margin.
    lapsed: Vec<LapsedHold>,
    /// How many outcomes of dropped questions have arrived.
    #[cfg(test)]
    pub(crate) strays: u64,
}

#[derive(Debug)]
enum Stage {
    /// No caller in this process has the lock or wants it.
    Idle,
    /// The waiters' token contends for the lock, or is in the server's queue.
    Contending(Contending),
    /// A caller of this process holds the lock.
    Held(Held),
    /// No guard in this process holds the lock, but the lease is kept.
    Kept(KeptLease),
    /// The body has succeeded, and its value is for those who wait, once the server has the release.
    Sharing(SharingHold),
}

impl<W> Machine<W> {
    pub(crate) fn new() -> Self {
        Self {
            waiters: Waiters::default(),
            stage: Stage::Idle,
            open: None,
            contended: false,
            waited_for: false,
            heard: Moment::START,
            warned: Moment::START,
            lapsed: Vec::new(),
            #[cfg(test)]
            strays: 0,
        }
    }

    /// Whether the machine can be removed.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.waiters.is_empty() && self.lapsed.is_empty()
    }

    /// The demand of its lock while a call holds or wants it.
    pub(crate) fn demand(&self) -> Option<&Arc<Demand>> {
        match &self.stage {
            Stage::Idle | Stage::Kept(_) | Stage::Sharing(_) => None,
            Stage::Contending(contending) => Some(&contending.demand),
            Stage::Held(held) => Some(&held.hold.demand),
        }
    }

    /// Whether one of its keys, other than the first, fits.
    pub(crate) fn any_other_key(&self, fits: &dyn Fn(&str) -> bool) -> bool {
        let mut others = self.demand().into_iter().flat_map(|it| it.names.all().skip(1));
        others.any(|names| fits(names.main()))
    }

    /// The token that may be in the server's queue, and in messages.
    pub(crate) fn awaited(&self) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Contending(contending) => contending.queued_token(),
            // A message may say that a newer call has come. Later ones, which each look of a waiter sends, are
            // no news.
            Stage::Held(held) if held.hold.may_be_superseded() => Some(held.attempt.wire()),
            _ => None,
        }
    }

    /// The token that holds the lock or contends for it.
    #[cfg(test)]
    pub(crate) fn token(&self) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Idle | Stage::Sharing(_) => None,
            Stage::Contending(contending) => Some(contending.attempt.wire()),
            Stage::Held(held) => Some(held.attempt.wire()),
            Stage::Kept(kept) => Some(kept.token().wire()),
        }
    }

    /// The token of an idle lease, and since when it is idle.
    #[cfg(test)]
    pub(crate) fn kept_since(&self) -> Option<(Arc<str>, Moment)> {
        match &self.stage {
            Stage::Kept(kept) => Some((Arc::clone(kept.token().wire()), kept.since)),
            _ => None,
        }
    }

    /// The present hold of this process.
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        let Stage::Held(held) = &self.stage else { return None };
        Some(&held.hold)
    }

    /// The demand of a call that waits.
    pub(crate) fn waiting(&self, id: u64) -> Option<&Arc<Demand>> {
        self.waiters.get(id).map(|waiter| &waiter.demand)
    }

    /// Whether `is_it` accepts the demand of the present hold, or of a call that waits for it. `is_it`
    /// gets the hold of the call that has the lock.
    pub(crate) fn any_demand(
        &self,
        now: Moment,
        is_it: &mut dyn FnMut(&Demand, Option<&Hold>) -> bool,
    ) -> bool {
        let hold = self.hold().filter(|hold| hold.quiet_loss(now).is_none());
        hold.is_some_and(|hold| is_it(&hold.demand, Some(hold)))
            || self.waiters.iter().any(|waiter| is_it(&waiter.demand, None))
    }

    /// The token of the lease that this process has, in use or idle, as the server knows it.
    pub(crate) fn leased(&self) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Held(held) => Some(held.hold.token.wire()),
            Stage::Kept(kept) => Some(kept.token().wire()),
            Stage::Idle | Stage::Contending(_) | Stage::Sharing(_) => None,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held(_))
    }

    /// Takes the stage out, which leaves the machine idle.
    fn take_stage(&mut self, env: &mut Env<'_, W>) -> Stage {
        env.effects.moved.extend(Moved::of(&self.stage));
        std::mem::replace(&mut self.stage, Stage::Idle)
    }

    /// A caller wants the lock. Returns the hold where an idle lease is taken, which needs no
    /// waiter; else the caller waits as what `waiter` makes.
    pub(crate) fn ask(
        &mut self,
        demand: Arc<Demand>,
        waiter: impl FnOnce(Arc<Demand>, Moment) -> WaitingCall<W>,
        env: &mut Env<'_, W>,
    ) -> Option<Arc<Hold>> {
        if let Some(hold) = self.take_kept(&demand, env) {
            return Some(hold);
        }
        self.give_up_kept(IdleEnd::Terms, env);
        let most = demand.terms.max_waiters.filter(|_| demand.terms.wait != Wait::None);
        let waiter = waiter(demand, env.now);
        if most.is_some_and(|most| env.waiting >= most) {
            let waiting = env.waiting;
            env.refuse(waiter, |key| LockError::Crowded { key, waiting, in_line: false });
            return None;
        }
        let id = waiter.id;
        self.join(waiter, env);
        if let Stage::Contending(contending) = &mut self.stage
            && most.is_some_and(|most| self.waiters.waiting() > most)
        {
            contending.let_in.push(id);
        }
        None
    }

    fn join(&mut self, waiter: WaitingCall<W>, env: &mut Env<'_, W>) {
        self.notice_loss(env);
        if let Stage::Held(held) = &self.stage
            && waiter.differs(held.hold.demand.terms.same)
        {
            return env.refuse(waiter, |key| LockError::Mismatch { key });
        }
        if let (Stage::Sharing(_), false) = (&self.stage, waiter.can_wait()) {
            let busy = busy(&waiter, None, env.now);
            return env.fail(waiter.handle, busy);
        }
        if let (Stage::Held(held), false) = (&self.stage, waiter.can_wait()) {
            let busy = busy(&waiter, Some(&held.as_blocker(env.now)), env.now);
            return env.fail(waiter.handle, busy);
        }
        let (patient, is_once) = (waiter.can_wait(), waiter.wants_news());
        self.waiters.join(waiter);
        match &self.stage {
            Stage::Idle => self.start(env),
            // The last answer may be a second old, and a caller that does not wait, or that wants to
            // know whether something was done, needs a fresh one.
            Stage::Contending(contending)
                if (!patient || is_once)
                    && self.open.is_none()
                    && !contending.waits_for_holder()
                    && !planted!(NextLook) =>
            {
                self.ask_again(env);
            }
            Stage::Contending(_) | Stage::Held(_) | Stage::Kept(_) | Stage::Sharing(_) => {}
        }
    }

    /// A waiter has given up. Returns whether it was still waiting.
    pub(crate) fn cancel(&mut self, id: u64, env: &mut Env<'_, W>) -> bool {
        let left = self.waiters.leave(id).is_some();
        self.abandon_if_unwanted(env);
        left
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, env: &mut Env<'_, W>) {
        self.refuse_overdue(env);
        self.notice_loss(env);
        self.forget_lapsed(env);
        self.tell_long_wait(env);
        match &self.stage {
            Stage::Contending(contending) => {
                if self.open.is_none() && contending.look <= env.now {
                    self.ask_again(env);
                }
            }
            Stage::Held(_) => self.maintain_hold(env),
            Stage::Kept(_) => self.maintain_kept(env),
            Stage::Sharing(sharing) if sharing.until <= env.now => self.start(env),
            Stage::Idle | Stage::Sharing(_) => {}
        }
    }

    /// When `tick` is due.
    pub(crate) fn due(&self) -> Moment {
        let is_open = self.open.is_some();
        let stage = match &self.stage {
            Stage::Idle => Moment::NEVER,
            Stage::Contending(contending) => {
                let may_fail = contending.is_in_trouble(is_open) || contending.is_held_back();
                let outage = || self.waiters.outage_due(contending.heard.useful);
                let outage = if may_fail { outage() } else { Moment::NEVER };
                if is_open { outage } else { outage.min(contending.look) }
            }
            Stage::Held(held) => held.due(self.open.as_ref()),
            Stage::Kept(kept) => kept.due(is_open),
            Stage::Sharing(sharing) => sharing.until,
        };
        stage.min(self.waiters.due()).min(self.lapsed_due()).min(self.long_wait_due())
    }

    /// Whether this question is open and still wanted.
    pub(crate) fn wants(&self, number: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.number == number)
    }

    /// Handles the outcome of a question.
    pub(crate) fn on_outcome(&mut self, number: u64, outcome: Outcome, env: &mut Env<'_, W>) {
        let Some(open) = self.open.take_if(|open| open.number == number || planted!(AnyAnswer))
        else {
            #[cfg(test)]
            {
                self.strays += 1;
            }
            return;
        };
        if outcome.is_answered() {
            self.heard = self.heard.max(open.sent);
        }
        match &self.stage {
            Stage::Contending(_) => self.on_outcome_contending(open, outcome, env),
            Stage::Held(_) => self.on_outcome_held(open, outcome, env),
            Stage::Kept(_) => self.on_outcome_kept(open, outcome, env),
            Stage::Idle | Stage::Sharing(_) => {}
        }
    }

    /// A connection was made: waiters look, holders renew.
    pub(crate) fn on_connected(&mut self, env: &mut Env<'_, W>) {
        match &mut self.stage {
            Stage::Held(held) => {
                held.renew_soon(env.now);
                self.maintain_hold(env);
            }
            Stage::Contending(contending) => {
                // Earlier failures say little of what is asked now: if it fails as well, because some
                // node has not heard of the change, that is not for long.
                contending.heard.failures = contending.heard.failures.min(1);
                self.look_soon(env);
            }
            Stage::Kept(_) => self.give_up_kept(IdleEnd::Trouble, env),
            Stage::Idle | Stage::Sharing(_) => {}
        }
    }

    /// Messages arrive from now on, or no longer do: waiters look.
    pub(crate) fn on_listening(&mut self, env: &mut Env<'_, W>) {
        match self.stage {
            Stage::Kept(_) if !env.hints => self.give_up_kept(IdleEnd::Trouble, env),
            _ => self.look_soon(env),
        }
    }

    /// A message says that another process waits.
    pub(crate) fn on_waited_for(&mut self, env: &mut Env<'_, W>) {
        self.waited_for = true;
        match &mut self.stage {
            Stage::Held(held) => held.turn.shorten(env.now),
            Stage::Kept(_) => self.give_up_kept(IdleEnd::Asked, env),
            Stage::Idle | Stage::Contending(_) | Stage::Sharing(_) => {}
        }
    }

    /// Sends a question about the attempt of the stage.
    fn send(&mut self, demand: &Demand, about: About, mut verb: Verb, env: &mut Env<'_, W>) {
        // The server has the margin on top of the lease that the guard believes in.
        let margin = demand.terms.margin;
        let ttl = match &mut verb {
            Verb::Take { ttl, .. }
            | Verb::Acquire(Acquire { ttl, .. })
            | Verb::Renew { ttl, .. } => {
                std::mem::replace(ttl, ttl.map(|ttl| ttl.saturating_add(margin)))
            }
            Verb::Keep { time, .. } => Some(time.saturating_sub(margin)),
            _ => None,
        };
        let mut command = command(demand, verb);
        if let (crate::domain::kind::Kind::All { ordered }, About::Acquire { ordered: keeps, .. }) =
            (&mut command.kind, about)
        {
            *ordered = keeps;
        }
        let number = env.number();
        let late_at = match about {
            About::Renew | About::Cut => env.now.after(demand.terms.renewal_timeout()),
            _ => Moment::NEVER,
        };
        let askers = Askers::default();
        self.open = Some(Open { number, about, ttl, sent: env.now, late_at, askers });
        env.effects.out.push(Outgoing::Ask(Question { number, command }));
    }
}

/// The lease to ask for: the ttl, or less when `max_hold` ends earlier.
fn asked_ttl(demand: &Demand) -> Option<Duration> {
    demand.terms.ttl.map(|ttl| ttl.min(lease::covering(demand.terms.max_hold)))
}

fn command(demand: &Demand, verb: Verb) -> Command {
    let (names, terms) = (demand.names.clone(), &demand.terms);
    let is_renewal = matches!(verb, Verb::Renew { .. } | Verb::Keep { .. });
    let timeout = if is_renewal { terms.renewal_timeout() } else { terms.timeout };
    Command { names, kind: demand.kind, verb, timeout }
}
