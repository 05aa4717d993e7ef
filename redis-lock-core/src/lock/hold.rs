//! One hold of one lock, shared by its guard and the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Wake;
use std::time::Duration;

use once_cell::race::OnceBox;
use tokio::task;

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::kind::Kind;
use crate::lock::hold_life::{HoldLife, Phase, SharedLife};
use crate::observe::{self, HoldFacts, HoldReport};
use crate::sync::NewsWaiters;
use crate::{LockError, LockState, LossReason, Token};

/// One hold of one lock.
///
/// The first to look after the lease's end records the loss. Nothing that arrives later undoes it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) demand: Arc<Demand>,
    pub(crate) token: Token,
    pub(crate) fence: Option<u64>,
    /// The number of its permit.
    pub(crate) slot: Option<u32>,
    /// The earliest time at which the server may have granted the lock.
    pub(crate) since: Moment,
    life: SharedLife,
    /// Why it was lost, where its phase does not say that. Most holds are never lost.
    reason: OnceBox<LossReason>,
    /// Whether a writer's hold has become a reader's.
    is_downgraded: AtomicBool,
    /// For those who wait for its end, if there are any. It is made without waiting for a thread,
    /// because a forked child does not have the thread that was about to make it.
    ended: OnceBox<NewsWaiters>,
    report: HoldReport,
    /// The id of the process that it belongs to.
    process: u32,
    /// Whether a guard has ever joined it.
    is_joined: AtomicBool,
    /// Whether a newer call has come.
    is_superseded: AtomicBool,
    /// The task that polls the body which runs under it, if one does.
    task: OnceLock<task::Id>,
}

impl Hold {
    pub(crate) fn new(
        demand: Arc<Demand>,
        token: Token,
        fence: Option<u64>,
        since: Moment,
        deadline: Moment,
        process: u32,
    ) -> Self {
        let limit = limit(&demand, since);
        Self {
            demand,
            token,
            fence,
            slot: None,
            since,
            life: SharedLife::until(deadline.min(limit)),
            reason: OnceBox::new(),
            is_downgraded: AtomicBool::new(false),
            ended: OnceBox::new(),
            report: HoldReport::default(),
            process,
            is_joined: AtomicBool::new(false),
            is_superseded: AtomicBool::new(false),
            task: OnceLock::new(),
        }
    }

    /// A body is going to run under it, polled by this task.
    pub(crate) fn runs_in(&self, task: Option<task::Id>) {
        if let Some(task) = task {
            let _ = self.task.set(task);
        }
    }

    pub(crate) fn task(&self) -> Option<task::Id> {
        self.task.get().copied()
    }

    /// The kind that it is held as now.
    pub(crate) fn kind(&self) -> Kind {
        if !self.is_forked() && self.is_downgraded.load(Ordering::Acquire) {
            return Kind::Read;
        }
        self.demand.kind
    }

    /// The hold was downgraded from a writer's to a reader's.
    pub(crate) fn downgraded(&self) {
        self.is_downgraded.store(true, Ordering::Release);
    }

    /// The end that `max_hold` sets.
    pub(crate) fn limit(&self) -> Moment {
        limit(&self.demand, self.since)
    }

    pub(crate) fn state(&self, now: Moment) -> LockState {
        self.seen(now).map_or(LockState::Lost, HoldLife::state)
    }

    /// The state as of the last look, without checking the time.
    pub(crate) fn last_state(&self) -> LockState {
        self.life.get().state()
    }

    /// The kind that it is held as. It is readable in a forked child process.
    #[cfg(test)]
    pub(crate) fn last_kind(&self) -> Kind {
        if self.is_downgraded.load(Ordering::Acquire) { Kind::Read } else { self.demand.kind }
    }

    /// Whether its guard has released it.
    pub(crate) fn is_released(&self) -> bool {
        self.life.get().phase == Phase::Released
    }

    /// The rest of the lease; zero once it is lost or released.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        let runs = self.seen(now).filter(|life| life.runs());
        runs.map_or(Duration::ZERO, |life| life.deadline.since(now))
    }

    /// When the lease ends by this side's clock.
    pub(crate) fn deadline(&self) -> Moment {
        self.life.get().deadline
    }

    /// Why it was lost, if it was. It is readable in a forked child process.
    pub(crate) fn quiet_loss(&self, now: Moment) -> Option<LossReason> {
        self.reason_of(self.latch(now))
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self, now: Moment) -> Option<LossReason> {
        self.seen(now).map_or_else(|| Some(parents()), |life| self.reason_of(life))
    }

    /// Why guards that joined it have the lock no more, if that is so: it was lost, or given back.
    pub(crate) fn end(&self, now: Moment) -> Option<LossReason> {
        if self.is_forked() { Some(parents()) } else { self.quiet_end(now) }
    }

    /// The same, readable in a forked child process.
    pub(crate) fn quiet_end(&self, now: Moment) -> Option<LossReason> {
        let life = self.latch(now);
        if life.phase == Phase::Released {
            let because = Some("the guard that it joined was released".to_owned());
            return Some(LossReason::Removed { because });
        }
        self.reason_of(life)
    }

    /// A guard is about to join it.
    pub(crate) fn join(&self) {
        self.is_joined.store(true, Ordering::Release);
    }

    /// How many wait for its end because they have joined it.
    pub(crate) fn waiting_joined(&self) -> usize {
        if self.is_joined.load(Ordering::Acquire) { self.waiting() } else { 0 }
    }

    /// The error of a hold that was lost.
    pub(crate) fn lost_error(&self, reason: LossReason) -> LockError {
        LockError::Lost { key: self.demand.key().to_string(), reason }
    }

    /// A renewal was confirmed: the lease runs until `deadline`, unless it had ended before.
    /// Returns whether it is still held.
    pub(crate) fn renewed(&self, now: Moment, deadline: Moment) -> bool {
        let limit = self.limit();
        let renew = |life: HoldLife| HoldLife {
            phase: Phase::Held,
            deadline: life.deadline.max(deadline).min(limit),
        };
        self.change_running(now, renew).1.runs()
    }

    /// A try to renew it failed. Returns whether none had failed since the last renewal.
    pub(crate) fn doubted(&self, now: Moment) -> bool {
        let doubt = |life| HoldLife { phase: Phase::Uncertain, ..life };
        let (before, after) = self.change_running(now, doubt);
        before != after && after.phase == Phase::Uncertain
    }

    /// The server said that the token does not have the lock. An earlier loss keeps its reason.
    pub(crate) fn lose(&self, now: Moment, reason: LossReason) {
        // Before the phase that refers to it. Where the hold has ended otherwise, it is not read.
        self.reason.get_or_init(|| Box::new(reason));
        self.change_running(now, |life| HoldLife { phase: Phase::Lost, ..life });
    }

    /// How many wait for its end. The hold itself is a waker that wakes one of them.
    pub(crate) fn waiting(&self) -> usize {
        self.ended.get().map_or(0, NewsWaiters::count)
    }

    /// The guard gives the lock back. Returns whether the guard still held it.
    pub(crate) fn release(&self, now: Moment) -> bool {
        let released = |life| HoldLife { phase: Phase::Released, ..life };
        let (before, after) = self.change_running(now, released);
        before.runs() && after.phase == Phase::Released
    }

    /// The facts for events.
    pub(crate) fn described(&self) -> HoldFacts<'_> {
        let Self { demand, token, fence, slot, report, .. } = self;
        HoldFacts { demand, token, fence: *fence, slot: *slot, report }
    }

    /// Reports its release, if its beginning was reported.
    #[inline]
    pub(crate) fn report_release(&self) {
        if self.report.has_begun()
            && let Some(has_begun) = self.report.end()
        {
            self.report_end(has_begun);
        }
    }

    /// Reports its loss, even if its beginning was not reported. The guard, which may be dropped before that,
    /// says nothing then.
    pub(crate) fn report_loss(self: Arc<Self>) {
        if let Some(has_begun) = self.report.end() {
            observe::later(move || self.report_end(has_begun));
        }
    }

    fn report_end(&self, has_begun: bool) {
        let now = Moment::now();
        observe::ended(self.described(), has_begun, now.since(self.since), self.loss(now));
    }

    /// Reports that a newer call has come.
    pub(crate) fn report_superseded(self: Arc<Self>) {
        if observe::may_be_heard() {
            observe::later(move || observe::superseded(self.described()));
        }
    }

    /// Waits for the loss.
    pub(crate) async fn lost(&self) -> LossReason {
        self.until(|| self.loss(Moment::now())).await
    }

    /// Waits until it is lost or given back.
    pub(crate) async fn ended(&self) -> LossReason {
        self.until(|| self.end(Moment::now())).await
    }

    /// Whether a newer call may end it, and none has.
    pub(crate) fn may_be_superseded(&self) -> bool {
        self.demand.terms.newest && self.token.is_newest() && !self.is_superseded()
    }

    /// Whether a newer call has come, which gets the lock after this hold.
    pub(crate) fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::Acquire)
    }

    /// A newer call has come. Returns whether that is news.
    pub(crate) fn supersede(&self) -> bool {
        !self.is_superseded.swap(true, Ordering::AcqRel)
    }

    /// Waits until a newer call has come.
    pub(crate) async fn superseded(&self) {
        self.until(|| self.is_superseded().then_some(())).await;
    }

    /// Looks now, and each time when there is news of this hold, until there is a result.
    pub(crate) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        self.ended.get_or_init(Box::default).until(look).await
    }

    /// The state at `now`; `None` in a forked child process.
    fn seen(&self, now: Moment) -> Option<HoldLife> {
        (!self.is_forked()).then(|| self.latch(now))
    }

    /// The state at `now`. If the lease has run out, the loss is recorded first; the engine, whose timer
    /// is due as well, wakes those who wait for it.
    fn latch(&self, now: Moment) -> HoldLife {
        let life = self.life.get();
        // Nearly always there is nothing to record.
        if !life.runs() || now < life.deadline {
            return life;
        }
        let limit = self.limit();
        self.life.change(|life| life.at(now, limit)).1
    }

    /// Changes a hold that is not over at `now`; records the loss if its lease has run out. Returns the
    /// state before and after that.
    fn change_running(
        &self,
        now: Moment,
        change: impl Fn(HoldLife) -> HoldLife,
    ) -> (HoldLife, HoldLife) {
        let limit = self.limit();
        self.life.change(|life| {
            let life = life.at(now, limit);
            if life.runs() { change(life) } else { life }
        })
    }

    /// Why it was lost, in this state.
    fn reason_of(&self, life: HoldLife) -> Option<LossReason> {
        match life.phase {
            Phase::Held | Phase::Uncertain | Phase::Released => None,
            Phase::Expired => Some(LossReason::Expired),
            Phase::Limited => Some(LossReason::HoldLimit),
            Phase::Lost => self.reason.get().cloned(),
        }
    }

    /// Whether this is a copy in a forked child process: the lock belongs to the parent.
    fn is_forked(&self) -> bool {
        self.process != crate::domain::env::process()
    }
}

/// Wakes one of those who wait for its end.
impl Wake for Hold {
    fn wake(self: Arc<Self>) {
        if let Some(ended) = self.ended.get() {
            ended.wake_one();
        }
    }
}

/// The end that `max_hold` sets.
fn limit(demand: &Demand, since: Moment) -> Moment {
    if demand.terms.ttl.is_none() { Moment::NEVER } else { since.after(demand.terms.max_hold) }
}

/// Why a copy in a forked child process is not held.
fn parents() -> LossReason {
    let because = Some("the guard belongs to the parent of this process".to_owned());
    LossReason::Removed { because }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use testbed::WakeLog;

    use super::*;
    use crate::domain::demand::tests::demand;

    fn hold(max_hold: Duration) -> Hold {
        let demand = demand("k").with(|terms| terms.max_hold = max_hold);
        let at = Moment::at_millis;
        Hold::new(
            Arc::new(demand),
            Token::fresh("", ""),
            None,
            at(0),
            at(1_000),
            crate::domain::env::process(),
        )
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn c5_a_renewal_that_arrives_after_the_end_changes_nothing() {
        let hold = hold(HOUR);
        assert!(!hold.renewed(Moment::at_millis(1_000), Moment::at_millis(5_000)));
        assert_eq!(hold.state(Moment::at_millis(999)), LockState::Lost, "the loss is latched");
        assert_eq!(hold.loss(Moment::at_millis(0)), Some(LossReason::Expired));
    }

    #[test]
    fn c3_a_missed_renewal_makes_it_uncertain_and_the_next_one_held_again() {
        let hold = hold(HOUR);
        hold.doubted(Moment::at_millis(500));
        assert_eq!(hold.state(Moment::at_millis(500)), LockState::Uncertain);
        assert!(hold.renewed(Moment::at_millis(600), Moment::at_millis(1_600)));
        assert_eq!(hold.state(Moment::at_millis(1_500)), LockState::Held);
        assert_eq!(hold.remaining(Moment::at_millis(1_500)), Duration::from_millis(100));
    }

    #[test]
    fn c11_no_renewal_reaches_beyond_max_hold() {
        let hold = hold(Duration::from_millis(1_200));
        assert!(hold.renewed(Moment::at_millis(900), Moment::at_millis(1_900)));
        assert_eq!(hold.loss(Moment::at_millis(1_199)), None);
        assert_eq!(hold.loss(Moment::at_millis(1_200)), Some(LossReason::HoldLimit));
    }

    #[test]
    fn b12_a_second_release_and_one_after_the_loss_do_nothing() {
        let released = hold(HOUR);
        assert!(released.release(Moment::at_millis(1)));
        assert!(!released.release(Moment::at_millis(2)));
        assert!(released.is_released());
        assert_eq!(released.state(Moment::at_millis(2_000)), LockState::Released);
        let lost = hold(HOUR);
        lost.lose(Moment::at_millis(1), LossReason::Removed { because: None });
        assert!(!lost.release(Moment::at_millis(2)));
        assert!(!lost.is_released());
        assert_eq!(lost.state(Moment::at_millis(2)), LockState::Lost);
        let over = hold(HOUR);
        assert!(!over.release(Moment::at_millis(1_000)), "no call has looked at the time before");
        assert_eq!(over.loss(Moment::at_millis(1_000)), Some(LossReason::Expired));
    }

    /// A hold of the process with this id, whose lease continues.
    fn lasting(process: u32) -> Hold {
        let (demand, token) = (Arc::new(demand("k")), Token::fresh("", ""));
        Hold::new(demand, token, None, Moment::now(), Moment::now().after(HOUR), process)
    }

    #[test]
    fn a_task_that_waits_for_the_loss_is_woken_by_it() {
        let hold = Arc::new(lasting(crate::domain::env::process()));
        let (wakes, mut lost) = (WakeLog::new(), std::pin::pin!(hold.lost()));
        let waker = wakes.waker();
        let mut context = Context::from_waker(&waker);
        assert!(lost.as_mut().poll(&mut context).is_pending());
        hold.lose(Moment::now(), LossReason::Expired);
        assert_eq!(wakes.count(), 0, "not under a lock of ours");
        assert_eq!(hold.waiting(), 1);
        Arc::clone(&hold).wake();
        assert_eq!(wakes.count(), 1);
        assert_eq!(lost.as_mut().poll(&mut context), Poll::Ready(LossReason::Expired));
    }

    #[test]
    fn what_a_thread_of_the_parent_was_about_to_make_holds_up_nobody_in_the_child() {
        let hold = Arc::new(lasting(crate::domain::env::process().wrapping_add(1)));
        let (making, is_making) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let maker = Arc::clone(&hold);
        let maker = thread::spawn(move || {
            maker.ended.get_or_init(|| {
                making.send(()).unwrap();
                let _ = ended.recv();
                Box::default()
            });
        });
        is_making.recv().unwrap();
        let (says, said) = mpsc::channel();
        let waiter = Arc::clone(&hold);
        let waiter = thread::spawn(move || {
            let mut context = Context::from_waker(Waker::noop());
            says.send(std::pin::pin!(waiter.lost()).poll(&mut context).is_ready()).unwrap();
        });
        let is_lost = said.recv_timeout(Duration::from_secs(5));
        drop(end);
        maker.join().unwrap();
        waiter.join().unwrap();
        assert_eq!(is_lost, Ok(true));
    }

    #[test]
    fn a_hold_of_the_parent_process_is_lost_in_the_child() {
        let hold = lasting(crate::domain::env::process().wrapping_add(1));
        let now = Moment::now();
        assert_eq!((hold.state(now), hold.remaining(now)), (LockState::Lost, Duration::ZERO));
        assert!(matches!(hold.loss(now), Some(LossReason::Removed { because: Some(_) })));
        assert_eq!(hold.last_state(), LockState::Held, "the parent's copy is not touched");
    }
}
