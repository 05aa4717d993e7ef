//! Getting the lock from the server.

use std::sync::Arc;
use std::time::Duration;

use super::heed::Heed;
use super::held::Lease;
use super::{Act, Reap, Slot, Stage, Waiter, World, busy};
use crate::clock::Moment;
use crate::demand::{Demand, Kind};
use crate::error::{Fault, FaultClass};
use crate::lease;
use crate::observe::is_listening;
use crate::store::{Answer, Command, Rival, Verb};
use crate::{LockError, Token};

/// How long a place in the server's queue lasts when nobody asks again.
pub(super) const PLACE: Duration = Duration::from_secs(5);

/// The longest time between two looks at a lock that is waited for: what a lost message costs.
const LOOK: Duration = Duration::from_secs(1);

/// The same where the holder is no client of ours and tells nobody when it releases.
const LOOK_AT_FOREIGNER: Duration = Duration::from_millis(250);

/// How long the release of a lock without a lease is tried.
pub(super) const UNLEASED: Duration = Duration::from_secs(24 * 60 * 60);

/// How often several keys are asked for all at once. After so many refusals those that were free
/// are kept: who needs many keys would else wait for ever where each of them is busy often.
const ROUNDS: u32 = 3;

/// The shortest time between two looks while the same holder keeps renewing.
const LEAST: Duration = Duration::from_millis(350);

/// A token on its way to the lock.
#[derive(Debug)]
pub(super) struct Contender {
    token: Token,
    /// In whose terms it was last asked for.
    demand: Arc<Demand>,
    /// The lease that was last asked for.
    ttl: Option<Duration>,
    /// How many questions are out.
    asking: bool,
    /// When to ask again.
    next: Moment,
    /// A hint came while a question was out: ask once more whatever the answer.
    hinted: bool,
    heed: Heed,
    /// The outcome of some question is unknown and may come true later.
    doubtful: bool,
    /// Failures in a row.
    failures: u32,
    /// Looks in a row that found the same holder.
    looks: u32,
    /// How often somebody else had the lock.
    refusals: u32,
    /// Whether the server has heard of the token.
    sent: bool,
    /// Whether all it has heard is a `Take`.
    short: bool,
    last: Last,
}

/// What the last answer said.
#[derive(Debug)]
enum Last {
    Nothing,
    Busy(Rival),
    Failed(Fault),
}

impl Contender {
    fn new(demand: &Arc<Demand>, world: &World) -> Self {
        Self::of(token(demand, world), demand, world.now)
    }

    fn of(token: Token, demand: &Arc<Demand>, next: Moment) -> Self {
        Self {
            token,
            demand: Arc::clone(demand),
            ttl: None,
            asking: false,
            next,
            hinted: false,
            heed: Heed::default(),
            doubtful: false,
            failures: 0,
            looks: 0,
            refusals: 0,
            sent: false,
            short: false,
            last: Last::Nothing,
        }
    }

    /// One that the server has queued already.
    pub(super) fn queued(token: Token, demand: &Arc<Demand>, next: Moment, doubtful: bool) -> Self {
        Self { sent: true, doubtful, ..Self::of(token, demand, next) }
    }

    /// What takes the token back from the server, where the server may have heard of it.
    fn reap(&self, now: Moment) -> Option<Reap> {
        let token = self.token.wire();
        let command = command(
            &self.demand,
            Verb::Acquire {
                token: Arc::clone(token),
                ttl: self.ttl,
                queue: None,
                fair: true,
                fences: 0,
                repair_orphan: None,
            },
        );
        let reap = || Reap { short: self.short, ..reap(&command, token, now, self.doubtful) };
        self.sent.then(reap)
    }

    pub(super) fn token(&self) -> &Token {
        &self.token
    }

    /// Whether to follow a hint now. If not, since another was followed a moment ago, then soon.
    fn heeds(&mut self, now: Moment) -> bool {
        let at = self.heed.follow_at(now);
        if at > now {
            self.next = self.next.min(at);
            return false;
        }
        self.heed.followed(now);
        true
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking
    }

    /// Whether nothing at all has been heard yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.asking && matches!(self.last, Last::Nothing)
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        !self.asking && now >= self.next
    }

    pub(super) fn due(&self) -> Moment {
        if self.asking { Moment::NEVER } else { self.next }
    }

    pub(super) fn refusal<W>(&self, waiter: &Waiter<W>, now: Moment) -> LockError {
        match &self.last {
            Last::Nothing if self.asking && waiter.is_patient() => {
                let fault = Fault::new(FaultClass::Late, "the server did not answer in time");
                LockError::backend(Some(waiter.demand.key.as_str()), &fault)
            }
            Last::Nothing => busy(waiter, None, now),
            Last::Busy(rival) => busy(waiter, Some(rival), now),
            Last::Failed(fault) => LockError::backend(Some(waiter.demand.key.as_str()), fault),
        }
    }

    /// When to look again at a lock that `rival` has.
    fn look_at(&self, rival: &Rival, world: &World) -> Moment {
        let jitter = Duration::from_millis(1) + Duration::from_micros(40) * u32::from(world.spread);
        let ours =
            rival.value.as_deref().is_none_or(|value| Token::from_wire(value).manager().is_some());
        let most = match (rival.queued && world.told, ours) {
            // Nobody will tell: look ever more rarely, from 20 ms to half a second.
            (false, _) => Duration::from_millis(20) * (1 << self.looks.min(5)),
            (true, true) => LOOK,
            (true, false) => LOOK_AT_FOREIGNER,
        };
        let most = most * 3 / 4 + most * u32::from(world.spread) / 512;
        let least = if rival.queued && self.looks > 1 { LEAST } else { Duration::ZERO };
        let wait = rival.ttl.map_or(most, |ttl| most.min((ttl + jitter).max(least)));
        world.now.after(wait)
    }
}

impl<W> Slot<W> {
    /// Begins to contend for the first waiter.
    pub(super) fn start(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Some(first) = self.waiters.front() else {
            self.stage = Stage::Idle;
            return;
        };
        self.stage = Stage::Contending(Contender::new(&first.demand, world));
        self.waited_for = false;
        self.ask_again(world, out);
    }

    /// The token was buried, or can't be used any more: the next try needs one of its own.
    fn start_over(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Contending(before) = &self.stage else { return };
        let refusals = before.refusals;
        if before.doubtful {
            out.extend(before.reap(world.now).map(Act::Reap));
        }
        self.start(world, out);
        if let Stage::Contending(contender) = &mut self.stage {
            contender.refusals = refusals;
        }
    }

    /// Asks the server for the contender's token.
    pub(super) fn ask_again(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        let patient = self.waiters.iter().any(Waiter::is_patient);
        let (Stage::Contending(contender), Some(first)) = (&mut self.stage, self.waiters.front())
        else {
            return;
        };
        let demand = &first.demand;
        if contender.token.is_lasting() != demand.ttl.is_none() {
            // The lock is meant for somebody of another sort now; what was asked for goes back.
            out.extend(contender.reap(world.now).map(Act::Reap));
            *contender = Contender::new(demand, world);
        }
        let blind = demand.kind == Kind::Mutex
            && !self.contended
            && !contender.sent
            && !demand.fenced
            && demand.repair_orphan.is_none();
        let ttl = asked_ttl(demand);
        let token = contender.token.wire().clone();
        let verb = if blind {
            Verb::Take { token, ttl }
        } else {
            Verb::Acquire {
                token,
                ttl,
                queue: patient.then_some(PLACE),
                fair: demand.fair,
                fences: if demand.fenced { super::held::FENCES } else { 0 },
                repair_orphan: demand.repair_orphan,
            }
        };
        let mut command = command(demand, verb);
        if let Kind::All { ordered } = &mut command.kind {
            *ordered = contender.refusals >= ROUNDS;
        }
        contender.demand = Arc::clone(demand);
        contender.ttl = ttl;
        contender.asking = true;
        contender.sent = true;
        contender.short = blind;
        contender.hinted = false;
        out.push(Act::Send(command));
    }

    /// The answer to a question for `token`, which was sent at `sent`.
    pub(crate) fn asked(
        &mut self,
        command: &Command,
        sent: Moment,
        answer: Result<Answer, Fault>,
        world: &World,
        out: &mut Vec<Act<W>>,
    ) {
        let Some(token) = command.verb.asks_for() else { return };
        let current = match &mut self.stage {
            Stage::Contending(contender) if contender.token.wire() == token => {
                contender.asking = false;
                true
            }
            Stage::Held(held) if held.is_of(token) => return,
            _ => false,
        };
        if !current {
            // Nobody wants it any more: undo what it did, or may still do.
            let doubtful = match answer {
                Ok(Answer::Held { .. } | Answer::HandedOver) => false,
                Ok(Answer::Busy(rival)) if rival.queued => false,
                Err(fault) if fault.class.is_unknown() => true,
                Ok(_) | Err(_) => return,
            };
            out.push(Act::Reap(reap(command, token, sent, doubtful)));
            return;
        }
        match answer {
            Ok(Answer::Held { fence }) => self.got_it(sent, fence, world, out),
            Ok(Answer::Busy(rival)) => self.refused(command, rival, world, out),
            Ok(_) => self.start_over(world, out),
            Err(fault) => self.failed(fault, world, out),
        }
    }

    /// A message says that the lock waits for us. The server will tell whether that is true.
    pub(crate) fn hinted(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        match &mut self.stage {
            Stage::Contending(contender) if contender.asking => contender.hinted = true,
            Stage::Contending(contender) => {
                if contender.heeds(world.now) {
                    self.ask_again(world, out);
                }
            }
            // Messages come by a connection of their own and may overtake the answer.
            Stage::Yielding(yielding) => yielding.hint(),
            Stage::Idle | Stage::Held(_) => {}
        }
    }

    /// Whether the lock waits for this token here.
    pub(crate) fn contends_as(&self, wire: &str) -> bool {
        match &self.stage {
            Stage::Contending(contender) => &**contender.token.wire() == wire,
            Stage::Yielding(yielding) => yielding.queues_as(wire),
            Stage::Idle | Stage::Held(_) => false,
        }
    }

    fn got_it(&mut self, sent: Moment, fence: Option<u64>, world: &World, out: &mut Vec<Act<W>>) {
        // Who waits for the very first answer gets what it brings, even a little late.
        if !matches!(&self.stage, Stage::Contending(Contender { last: Last::Nothing, .. })) {
            self.fail_overdue(world, out);
        }
        let (Stage::Contending(contender), Some(first)) = (&mut self.stage, self.waiters.front())
        else {
            return;
        };
        let demand = &first.demand;
        if lease::deadline(sent, contender.ttl) <= world.now {
            // The answer took longer than the lease: handing it out would hand out nothing.
            out.extend(contender.reap(world.now).map(Act::Reap));
            *contender = Contender::new(demand, world);
            self.ask_again(world, out);
            return;
        }
        if contender.ttl != asked_ttl(demand) || (demand.fenced && fence.is_none()) {
            // It was asked for somebody who left; ask the same once more, in the new one's terms.
            self.ask_again(world, out);
            return;
        }
        let (token, doubtful, short) =
            (contender.token.clone(), contender.doubtful, contender.short);
        let lease = Lease { ttl: contender.ttl, sent, fence, doubtful, short };
        self.hand_out(token, lease, world, out);
    }

    fn refused(&mut self, command: &Command, rival: Rival, world: &World, out: &mut Vec<Act<W>>) {
        self.contended = true;
        let Stage::Contending(contender) = &mut self.stage else { return };
        contender.failures = 0;
        contender.refusals = contender.refusals.saturating_add(1);
        if matches!(command.verb, Verb::Take { .. }) {
            self.ask_again(world, out);
            return;
        }
        if contender.looks == 0 && !matches!(contender.last, Last::Busy(_)) && is_listening() {
            out.push(Act::Contended(Arc::clone(&contender.demand), rival.value.clone()));
        }
        let same = matches!(&contender.last, Last::Busy(last) if last.value == rival.value);
        contender.looks = if same { contender.looks.saturating_add(1) } else { 0 };
        contender.next = contender.look_at(&rival, world);
        let keeps = command.kind == Kind::All { ordered: true };
        contender.sent = rival.queued || keeps || contender.doubtful;
        contender.last = Last::Busy(rival);
        if contender.hinted && contender.heeds(world.now) {
            self.ask_again(world, out);
            return;
        }
        self.fail_impatient(world, out);
        self.abandon_if_unwanted(world, out);
    }

    fn failed(&mut self, fault: Fault, world: &World, out: &mut Vec<Act<W>>) {
        let Stage::Contending(contender) = &mut self.stage else { return };
        contender.failures = contender.failures.saturating_add(1);
        let (class, first) = (fault.class, contender.failures == 1);
        contender.doubtful |= class.is_unknown();
        contender.last = Last::Failed(fault);
        match class {
            // A connection that was cut while idle answers the first command with its end.
            FaultClass::Unknown if first => self.ask_again(world, out),
            FaultClass::Unknown | FaultClass::Late | FaultClass::Refused => {
                let pause = Duration::from_millis(25) * (1 << contender.failures.min(5));
                let pause = pause / 2 + pause * u32::from(world.spread) / 512;
                contender.next = world.now.after(pause);
                self.fail_impatient(world, out);
                self.abandon_if_unwanted(world, out);
            }
            FaultClass::Permanent | FaultClass::Misuse => {
                for waiter in std::mem::take(&mut self.waiters) {
                    let error = self.refusal(&waiter, world.now);
                    out.push(Act::Fail(waiter.handle, error));
                }
                self.abandon_if_unwanted(world, out);
            }
        }
    }

    /// Takes the token back when nobody is left who wants it.
    pub(super) fn abandon_if_unwanted(&mut self, world: &World, out: &mut Vec<Act<W>>) {
        if !self.waiters.is_empty() {
            return;
        }
        if let Stage::Contending(contender) = &self.stage {
            out.extend(contender.reap(world.now).map(Act::Reap));
            self.stage = Stage::Idle;
        }
    }
}

/// A fresh token in the terms of a demand.
pub(super) fn token(demand: &Demand, world: &World) -> Token {
    let make = if demand.ttl.is_none() { Token::lasting } else { Token::fresh };
    make(&world.manager, &demand.label)
}

/// The lease to ask for: the whole ttl, or less where `max_hold` comes first.
pub(super) fn asked_ttl(demand: &Demand) -> Option<Duration> {
    demand.ttl.map(|ttl| ttl.min(lease::covering(demand.max_hold)))
}

pub(super) fn command(demand: &Demand, verb: Verb) -> Command {
    let names = Arc::clone(&demand.names);
    Command { names, kind: demand.kind, verb, timeout: demand.timeout }
}

/// The release of a token that some command asked for at `sent`.
fn reap(command: &Command, token: &Arc<str>, sent: Moment, doubtful: bool) -> Reap {
    let lease = match &command.verb {
        Verb::Take { ttl, .. } | Verb::Acquire { ttl, .. } | Verb::Yield { ttl, .. } => *ttl,
        _ => None,
    };
    let lease = lease.unwrap_or(UNLEASED);
    Reap {
        command: Command {
            verb: Verb::Release {
                token: Arc::clone(token),
                waited_for: false,
                keep: None,
                bury: doubtful.then_some(lease),
            },
            ..command.clone()
        },
        until: sent.after(lease + PLACE),
        doubtful,
        short: matches!(command.verb, Verb::Take { .. }),
        confirm: None,
    }
}
