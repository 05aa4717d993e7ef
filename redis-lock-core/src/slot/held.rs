//! Having the lock: renewing it, losing it, handing it on.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::contend::{self, Contender, PLACE, UNLEASED, asked_ttl, command};
use super::heed::Heed;
use super::{Act, Confirm, Reap, Slot, Stage, World};
use crate::clock::Moment;
use crate::demand::{Demand, Kind};
use crate::error::Fault;
use crate::hold::Hold;
use crate::store::{Answer, Command, Rival, Verb};
use crate::{LockError, LockState, LossReason, Token, lease};

/// How long a process may hand the lock among its own tasks before it asks whether another process
/// waits. A round trip in this much time is what the question costs.
const TURN: Duration = Duration::from_millis(10);

/// The same once it is known that one waits.
const SHORT_TURN: Duration = Duration::from_millis(1);

/// How often it may do so in this time: a bound that no clock can lift.
const PASSES: u32 = 8192;

/// How many fencing numbers a fenced acquisition reserves, so that local hand-overs need no server.
/// Numbers follow the clock in microseconds; more than one acquisition takes anyway would run ahead.
pub(super) const FENCES: u32 = 32;

/// The number that a reservation began with which ended with `last`.
pub(crate) fn first_fence(last: u64) -> u64 {
    (last + 1).saturating_sub(FENCES.into())
}

/// The lock is had by one of us.
#[derive(Debug)]
pub(super) struct Held {
    hold: Arc<Hold>,
    /// The lease on the server, whoever of us has it.
    ttl: Option<Duration>,
    sent: Moment,
    end: Moment,
    renew_at: Moment,
    renewing: bool,
    heed: Heed,
    /// When to follow word of a release by force.
    check_at: Moment,
    /// When others must be given a chance.
    turn_ends: Moment,
    /// How often the lease may still be handed on before that.
    passes: u32,
    fences: Range<u64>,
    doubtful: bool,
    short: bool,
}

/// A lease that the server granted.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) ttl: Option<Duration>,
    /// When it was asked for.
    pub(super) sent: Moment,
    /// The last of the fencing numbers that came with it.
    pub(super) fence: Option<u64>,
    /// Whether another question for the same token may still arrive.
    pub(super) doubtful: bool,
    /// Whether it was asked for in the short way.
    pub(super) short: bool,
}

/// The lock is had by none of us, and not given back yet.
#[derive(Debug)]
pub(super) struct Yielding {
    token: Token,
    next: Token,
    demand: Arc<Demand>,
    doubtful: bool,
    /// A hint came for `next` before the answer that says it is queued.
    hinted: bool,
}

impl Yielding {
    pub(super) fn hint(&mut self) {
        self.hinted = true;
    }

    pub(super) fn queues_as(&self, wire: &str) -> bool {
        &**self.next.wire() == wire
    }
}

impl Held {
    pub(super) fn is_of(&self, wire: &Arc<str>) -> bool {
        self.hold.token.wire() == wire
    }

    pub(super) fn due(&self, now: Moment) -> Moment {
        let renewal = if self.renewing { Moment::NEVER } else { self.renew_at };
        renewal.min(self.check_at).min(self.hold.deadline(now))
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(super) fn as_rival(&self, now: Moment) -> Rival {
        Rival {
            value: Some(self.hold.token.wire().to_string()),
            ttl: self.ttl.map(|_| self.end.since(now)),
            queued: false,
            repaired: false,
        }
    }

    /// Sets the next renewal after a lease that was asked for at `self.sent`.
    fn schedule(&mut self, spread: u8) {
        self.renew_at = match self.ttl {
            Some(ttl) if self.hold.demand.renew && self.end < self.hold.limit() => {
                lease::renewal(self.sent, ttl, spread)
            }
            _ => Moment::NEVER,
        };
    }

    /// The release of the lock as it stands.
    fn reap(&self, waited_for: bool, keep: Option<Duration>, confirm: Option<Confirm>) -> Reap {
        let hold = &self.hold;
        let lease = self.ttl.unwrap_or(UNLEASED);
        let token = Arc::clone(hold.token.wire());
        let bury = self.doubtful.then_some(lease);
        Reap {
            command: command(&hold.demand, Verb::Release { token, waited_for, keep, bury }),
            until: self.sent.after(lease + Duration::from_secs(1)),
            doubtful: self.doubtful,
            short: self.short,
            confirm,
        }
    }
}

impl<W> Slot<W> {
    /// Gives a lease to the first waiter.
    pub(super) fn hand_out(
        &mut self,
        token: Token,
        lease: Lease,
        world: &World,
        out: &mut Vec<Act<W>>,
    ) {
        let Lease { ttl, sent, fence, doubtful, short } = lease;
        let Some(waiter) = self.waiters.pop_front() else { return };
        let mut fences = fence.map_or(0..0, |last| first_fence(last)..last + 1);
        let end = lease::deadline(sent, ttl);
        let fence = if waiter.demand.fenced { fences.next() } else { None };
        let hold = Arc::new(Hold::new(waiter.demand, token, fence, sent, end));
        let mut held = Held {
            hold: Arc::clone(&hold),
            ttl,
            sent,
            end,
            renew_at: Moment::NEVER,
            renewing: false,
            heed: Heed::default(),
            check_at: Moment::NEVER,
            turn_ends: world.now.after(if self.waited_for { SHORT_TURN } else { TURN }),
            passes: PASSES,
            fences,
            doubtful,
            short,
        };
        held.schedule(world.spread);
        self.stage = Stage::Held(held);
        out.push(Act::Grant(waiter.handle, hold));
        self.fail_impatient(world, out);
    }

    /// The guard of `hold` gives it back.
    pub(crate) fn release(
        &mut self,
        hold: &Arc<Hold>,
        confirm: Option<Confirm>,
        world: &World,
        out: &mut Vec<Act<W>>,
    ) {
        self.notice_loss(world, out);
        let held = match &mut self.stage {
            Stage::Held(held) if Arc::ptr_eq(&held.hold, hold) => held,
            _ => return tell(confirm, ended(hold, world.now)),
        };
        if !hold.release(world.now) {
            return tell(confirm, ended(hold, world.now));
        }
        let least = hold
            .demand
            .min_hold
            .map_or(Duration::ZERO, |least| hold.since.after(least).since(world.now));
        if !least.is_zero() {
            out.push(Act::Reap(held.reap(
                false,
                Some(crate::demand::whole_millis(least)),
                confirm,
            )));
            self.contended = true;
            return self.start(world, out);
        }
        self.fail_overdue(world, out);
        let Stage::Held(held) = &mut self.stage else { return };
        let Some(next) = self.waiters.front() else {
            out.push(Act::Reap(held.reap(self.waited_for, None, confirm)));
            self.stage = Stage::Idle;
            return;
        };
        let same_terms = next.demand.ttl == held.ttl
            && held.ttl.is_some()
            && next.demand.renew
            && held.renew_at != Moment::NEVER
            && next.demand.max_hold >= hold.demand.max_hold;
        let fresh = world.now < held.turn_ends
            && held.passes > 0
            && held.ttl.is_some_and(|ttl| held.end.since(world.now) > ttl / 2);
        let numbered = !next.demand.fenced || !held.fences.is_empty();
        if hold.demand.kind == Kind::Mutex && same_terms && fresh && numbered {
            tell(confirm, Ok(()));
            self.pass_on(world, out);
        } else if hold.demand.kind == Kind::Mutex && held.ttl.is_some() && next.demand.ttl.is_some()
        {
            tell(confirm, Ok(()));
            self.yield_turn(world, out);
        } else {
            out.push(Act::Reap(held.reap(self.waited_for, None, confirm)));
            self.start(world, out);
        }
    }

    /// Somebody elsewhere waits, says a message.
    pub(crate) fn waited_for(&mut self, world: &World) {
        self.waited_for = true;
        if let Stage::Held(held) = &mut self.stage {
            held.turn_ends = held.turn_ends.min(world.now.after(SHORT_TURN));
        }
    }

    /// Hands the lease to the next of us without a word to the server.
    fn pass_on(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &mut self.stage else { return };
        let Some(waiter) = self.waiters.pop_front() else { return };
        held.passes = held.passes.saturating_sub(1);
        let token = held.hold.token.next_turn();
        let fence = if waiter.demand.fenced { held.fences.next() } else { None };
        held.hold = Arc::new(Hold::new(waiter.demand, token, fence, world.now, held.end));
        out.push(Act::Grant(waiter.handle, Arc::clone(&held.hold)));
    }

    /// Lets the server decide who is next.
    fn yield_turn(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let (Stage::Held(held), Some(next)) = (&self.stage, self.waiters.front()) else { return };
        let token = held.hold.token.next_turn();
        let demand = Arc::clone(&next.demand);
        let yielding = Yielding {
            next: contend::token(&demand, world),
            token,
            demand,
            doubtful: held.doubtful,
            hinted: false,
        };
        let verb = Verb::Yield {
            token: Arc::clone(yielding.token.wire()),
            next: Arc::clone(yielding.next.wire()),
            ttl: asked_ttl(&yielding.demand),
            fences: if yielding.demand.fenced { FENCES } else { 0 },
            queue: PLACE,
        };
        out.push(Act::Send(command(&yielding.demand, verb)));
        self.stage = Stage::Yielding(yielding);
    }

    /// The answer to `Yield`, which was sent at `sent`.
    pub(crate) fn yielded(
        &mut self,
        command: &Command,
        sent: Moment,
        answer: Result<Answer, Fault>,
        world: &World,
        out: &mut Vec<Act<W>>,
    ) {
        let Verb::Yield { token, ttl, .. } = &command.verb else { return };
        let yielding = match &self.stage {
            Stage::Yielding(yielding) if yielding.token.wire() == token => yielding,
            _ => return self.asked(command, sent, answer, world, out),
        };
        let (token, next) = (yielding.token.clone(), yielding.next.clone());
        self.waited_for = false;
        let (demand, doubtful) = (Arc::clone(&yielding.demand), yielding.doubtful);
        let hinted = yielding.hinted;
        match answer {
            Ok(Answer::Held { fence }) => {
                self.fail_overdue(world, out);
                let fits = self.waiters.front().is_some_and(|first| {
                    asked_ttl(&first.demand) == *ttl
                        && (!first.demand.fenced || fence.is_some())
                        && lease::deadline(sent, *ttl) > world.now
                });
                if fits {
                    let lease = Lease { ttl: *ttl, sent, fence, doubtful, short: false };
                    self.hand_out(token, lease, world, out);
                } else {
                    out.push(Act::Reap(given_up(&demand, &token, *ttl, sent, doubtful)));
                    self.start(world, out);
                }
            }
            Ok(Answer::HandedOver) => {
                self.contended = true;
                let look = world.now.after(Duration::from_secs(1));
                self.stage = Stage::Contending(Contender::queued(next, &demand, look, false));
                if hinted {
                    self.ask_again(world, out);
                }
                self.abandon_if_unwanted(world, out);
            }
            Ok(_) => self.start(world, out),
            Err(fault) => {
                let unknown = fault.class.is_unknown();
                out.push(Act::Reap(given_up(&demand, &token, *ttl, sent, doubtful)));
                let contender = Contender::queued(next, &demand, world.now, unknown);
                self.stage = Stage::Contending(contender);
                self.ask_again(world, out);
                self.abandon_if_unwanted(world, out);
            }
        }
    }

    /// Asks for a lease of at least `ttl` from now on.
    pub(crate) fn extend(
        &mut self,
        hold: &Arc<Hold>,
        ttl: Duration,
        out: &mut Vec<Act<W>>,
    ) -> bool {
        let Stage::Held(held) = &mut self.stage else { return false };
        if !Arc::ptr_eq(&held.hold, hold) {
            return false;
        }
        let ttl = held.ttl.map_or(ttl, |old| old.max(ttl));
        held.ttl = Some(ttl);
        out.push(Act::Send(command(
            &hold.demand,
            Verb::Renew { token: Arc::clone(hold.token.wire()), ttl: Some(ttl) },
        )));
        true
    }

    pub(super) fn renew_if_due(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &mut self.stage else { return };
        if held.renewing || world.now < held.renew_at {
            return;
        }
        held.renewing = true;
        let rest = lease::covering(held.hold.limit().since(world.now));
        let verb = Verb::Renew {
            token: Arc::clone(held.hold.token.wire()),
            ttl: held.ttl.map(|ttl| ttl.min(rest)),
        };
        out.push(Act::Send(command(&held.hold.demand, verb)));
    }

    /// Something happened that makes a look worth while: a new connection, or word of a forced
    /// release.
    pub(crate) fn doubt(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &mut self.stage else { return };
        if held.hold.state(world.now) == LockState::Uncertain {
            held.renew_at = held.renew_at.min(world.now);
            self.renew_if_due(world, out);
        }
    }

    /// When something is due for a lease that nobody has set a timer for.
    pub(crate) fn unattended(&self, now: Moment) -> Option<Moment> {
        match &self.stage {
            Stage::Held(held) if self.alarm.is_none() && !self.nursed => Some(held.due(now)),
            _ => None,
        }
    }

    /// A message says that the hold was ended by force. The server will tell whether that is true.
    pub(crate) fn alarmed(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &mut self.stage else { return };
        held.check_at = held.check_at.min(held.heed.follow_at(world.now));
        self.check_if_due(world, out);
    }

    pub(super) fn check_if_due(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &mut self.stage else { return };
        if held.check_at <= world.now {
            held.check_at = Moment::NEVER;
            held.heed.followed(world.now);
            self.check(out);
        }
    }

    /// Asks the server whether the lock is still ours.
    pub(crate) fn check(&mut self, out: &mut Vec<Act<W>>) -> bool {
        let Stage::Held(held) = &self.stage else { return false };
        let token = Arc::clone(held.hold.token.wire());
        out.push(Act::Send(command(&held.hold.demand, Verb::Check { token })));
        true
    }

    /// Asks the server to let a writer go on as a reader.
    pub(crate) fn downgrade(&mut self, hold: &Arc<Hold>, out: &mut Vec<Act<W>>) -> bool {
        let Stage::Held(held) = &self.stage else { return false };
        if !Arc::ptr_eq(&held.hold, hold) {
            return false;
        }
        let token = Arc::clone(hold.token.wire());
        out.push(Act::Send(command(&hold.demand, Verb::Downgrade { token })));
        true
    }

    /// The answer to `Renew` or `Check`, which was sent at `sent`.
    pub(crate) fn renewed(
        &mut self,
        command: &Command,
        sent: Moment,
        answer: &Result<Answer, Fault>,
        world: &World,
        out: &mut Vec<Act<W>>,
    ) {
        let (token, asked) = match &command.verb {
            Verb::Renew { token, ttl } => (token, *ttl),
            Verb::Check { token } | Verb::Downgrade { token } => (token, None),
            _ => return,
        };
        let held = match &mut self.stage {
            Stage::Held(held) if held.is_of(token) => held,
            _ => return,
        };
        let renewal = matches!(command.verb, Verb::Renew { .. });
        held.renewing &= !renewal;
        match answer {
            Ok(Answer::Gone { by, because }) => {
                let reason = match by {
                    Some(by) => LossReason::Overwritten { by: Token::from_wire(by) },
                    None => LossReason::Removed { because: because.clone() },
                };
                held.hold.lose(world.now, reason);
            }
            Ok(_) if renewal => {
                let end = lease::deadline(sent, asked);
                if held.hold.renewed(world.now, end) {
                    held.sent = sent;
                    held.end = held.end.max(end);
                    held.schedule(world.spread);
                }
            }
            Ok(_) => {}
            Err(_) if renewal => {
                held.hold.doubted(world.now);
                let ttl = held.ttl.unwrap_or(UNLEASED);
                if held.hold.demand.renew {
                    held.renew_at = lease::renewal_retry(world.now, ttl);
                }
            }
            Err(_) => {}
        }
        self.notice_loss(world, out);
    }

    /// Turns to the next waiter when the hold has ended without a release.
    pub(super) fn notice_loss(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &self.stage else { return };
        let Some(reason) = held.hold.loss(world.now) else { return };
        out.push(Act::Lost(Arc::clone(&held.hold)));
        // The server may count a lease that was renewed without our learning of it; and of several
        // keys, those that are not lost are ours still.
        let partly = matches!(held.hold.demand.kind, Kind::All { .. });
        if partly || matches!(reason, LossReason::Expired | LossReason::HoldLimit) {
            out.push(Act::Reap(held.reap(self.waited_for, None, None)));
        }
        self.start(world, out);
    }

    /// Takes the lock from its guard, for good.
    pub(super) fn surrender(&mut self, because: &str, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Held(held) = &self.stage else { return };
        let because = Some(because.to_owned());
        held.hold.lose(world.now, LossReason::Removed { because });
        out.push(Act::Lost(Arc::clone(&held.hold)));
        out.push(Act::Reap(held.reap(self.waited_for, None, None)));
        self.stage = Stage::Idle;
    }
}

fn tell(confirm: Option<Confirm>, outcome: Result<(), LockError>) {
    if let Some(confirm) = confirm {
        // Whoever asked may have left; the outcome stands without them.
        let _ = confirm.send(outcome);
    }
}

/// What a release finds that comes after the end of its hold.
fn ended(hold: &Hold, now: Moment) -> Result<(), LockError> {
    hold.loss(now).map_or(Ok(()), |reason| Err(hold.lost_error(reason)))
}

/// The release of a lease that none of us wants.
fn given_up(
    demand: &Demand,
    token: &Token,
    ttl: Option<Duration>,
    sent: Moment,
    doubtful: bool,
) -> Reap {
    let lease = ttl.unwrap_or(UNLEASED);
    let token = Arc::clone(token.wire());
    let bury = doubtful.then_some(lease);
    Reap {
        command: command(demand, Verb::Release { token, waited_for: false, keep: None, bury }),
        until: sent.after(lease + Duration::from_secs(1)),
        doubtful,
        short: false,
        confirm: None,
    }
}
