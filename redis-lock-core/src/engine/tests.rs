mod newest;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use testbed::{Server, eventually, holds_for};

use super::core::Core;
use super::lifecycle::LifeStage;
use super::lock_id::LockId;
use super::path::{AskedBy, QueueEntry, Results};
use crate::domain::clock::Moment;
use crate::domain::demand::tests::demand;
use crate::domain::env::simulated;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::value::Finish;
use crate::lock::tests::{Bench, Confirmed};
use crate::lock::{Next, Outcome, Reap};
use crate::store::wire::UNWANTED;
use crate::{LockError, LockRequest, LockState, Locks, LossReason};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_millis(800);

#[test]
fn j8_an_engine_that_fails_ends_every_hold_and_starts_again() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let request = || locks.mutex("job").ttl(TTL).wait(PATIENCE);
    // Longer than it takes to print where the engine panicked, and shorter than the next one waits.
    let guard = request().ttl(PATIENCE / 2).blocking_acquire().unwrap();
    let waiting = thread::spawn({
        let request = request();
        move || request.blocking_acquire()
    });
    let names = demand("job").names;
    eventually(PATIENCE, "the other one waits", || {
        locks.link().views(names.main()).iter().any(|view| view.waiters.len() == 1)
    });
    locks.link().crash();

    eventually(PATIENCE, "the holder learns of its loss", || guard.state() == LockState::Lost);
    let outcome = waiting.join().unwrap();
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    let error = guard.ensure(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("engine failed"), "{error}");
    assert!(guard.blocking_release().is_err_and(|error| error.is_lost()));

    // The new engine renews and releases as the old one did.
    let guard = request().ttl(PATIENCE / 2).blocking_acquire().unwrap();
    let left = || server.pttl("lock:job").unwrap();
    eventually(PATIENCE, "some of its lease is over", || left() < 4_500);
    eventually(PATIENCE, "it is renewed", || left() > 4_500);
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn an_engine_whose_thread_ends_ends_every_call() {
    let locks = Locks::in_memory();
    let request = || locks.mutex("job").wait(PATIENCE * 6);
    let guard = request().blocking_acquire().unwrap();
    let waiting = thread::spawn({
        let request = request();
        move || request.blocking_acquire()
    });
    let names = demand("job").names;
    eventually(PATIENCE, "the other one waits", || {
        locks.link().views(names.main()).iter().any(|view| view.waiters.len() == 1)
    });
    locks.link().crash_for_good();

    eventually(PATIENCE, "the waiter is refused", || waiting.is_finished());
    assert!(waiting.join().unwrap().is_err());
    assert!(matches!(request().blocking_acquire(), Err(LockError::Shutdown)));
    let ended = thread::spawn(move || locks.blocking_shutdown());
    eventually(PATIENCE, "a shutdown returns", || ended.is_finished());
    assert_eq!(guard.state(), LockState::Lost);
}

#[test]
fn a_task_that_blocks_for_many_locks_gets_all_of_them() {
    const PAIRS: usize = 200;
    let locks = Locks::in_memory();
    let done = Arc::new(AtomicUsize::new(0));
    let blocking = {
        let (locks, done) = (locks.clone(), Arc::clone(&done));
        async move {
            for _ in 0..PAIRS {
                locks.mutex("job").blocking_acquire().unwrap().blocking_release().unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    // On a thread of its own, since it would never end.
    thread::spawn(|| {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(blocking);
    });
    eventually(PATIENCE, "it has had all", || done.load(Ordering::SeqCst) == PAIRS);
    locks.blocking_shutdown();
}

#[test]
fn an_engine_that_starts_beside_a_shutdown_ends_and_keeps_nobody_waiting() {
    let locks = Locks::in_memory();
    locks.blocking_shutdown();
    // As a request does that was made just before the shutdown.
    locks.link().start();
    let ended = thread::spawn(move || locks.blocking_shutdown());
    eventually(PATIENCE, "the second shutdown returns", || ended.is_finished());
}

/// Takes and releases the lock of this key until its lease stays with the manager.
pub(super) fn have_a_lease_linger(locks: &Locks, key: &str) {
    let mut request = locks.mutex(key).ttl(PATIENCE * 3);
    request.options.linger = Some(PATIENCE * 2);
    eventually(PATIENCE, "its lease stays", || {
        request.clone().blocking_acquire().unwrap().blocking_release().unwrap();
        !locks.link().core().is_at_rest()
    });
}

#[test]
fn a_lingering_lease_ends_with_the_last_handle() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    have_a_lease_linger(&locks, "job");
    drop(locks);
    server.assert_clean();
}

#[test]
fn lg24_a_lease_lingers_no_longer_than_it_may_though_nothing_else_happens() {
    let locks = Locks::in_memory();
    let mut request = locks.mutex("job").ttl(PATIENCE * 6);
    request.options.linger = Some(Duration::from_millis(300));
    let core = locks.link().core();
    eventually(PATIENCE, "its lease stays", || {
        request.clone().blocking_acquire().unwrap().blocking_release().unwrap();
        !core.is_at_rest()
    });
    // Its renewal, for which the engine wakes anyway, is due much later.
    eventually(PATIENCE, "it is given back", || core.is_at_rest());
}

#[test]
fn what_lingers_is_not_in_the_way_of_several_keys() {
    let locks = Locks::in_memory();
    have_a_lease_linger(&locks, "a");
    let both = locks.all(["a", "b"]).blocking_try_acquire().unwrap();
    assert!(both.is_some(), "nobody is inside");
}

#[test]
fn a_task_that_takes_an_idle_lease_again_and_again_lets_others_run() {
    let locks = Locks::in_memory();
    have_a_lease_linger(&locks, "job");
    let mut request = locks.mutex("job").ttl(PATIENCE * 3);
    request.options.linger = Some(PATIENCE * 2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let has_run = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&has_run);
    let has_run = runtime.block_on(async move {
        let busy = tokio::spawn(async move {
            take_often(request).await;
            has_run.load(Ordering::Relaxed)
        });
        tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
        busy.await.unwrap()
    });
    assert!(has_run);
}

/// Takes a lease that lingers so often that a channel would have made the task give way.
async fn take_often(request: LockRequest) {
    let mut last = None;
    for _ in 0..1_000 {
        let guard = request.clone().acquire().await.unwrap();
        let token = guard.token().wire().clone();
        assert!(last.is_none_or(|last| last == token), "it stays the same lease");
        last = Some(token);
        guard.release().await.unwrap();
    }
}

/// An engine without a thread, and with a clock that stands still.
pub(super) struct Still;

impl Still {
    pub(super) fn begin() -> Self {
        simulated::begin(0, 1);
        Self
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        simulated::end();
    }
}

#[test]
fn what_is_refused_while_the_engine_ends_is_given_up() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = Arc::clone(locks.link().core());
    core.only_path().traffic().end();
    let mut waiting = pin!(locks.mutex("job").acquire());
    assert!(waiting.as_mut().now_or_never().is_none(), "it asks again when something is connected");
    // In tests a token that is dropped, and not given up, is a panic.
    end(&core);
    let outcome = waiting.now_or_never();
    assert!(matches!(outcome, Some(Err(LockError::Shutdown))), "{outcome:?}");
    assert!(core.is_at_rest());
}

/// The entries of the queue, in order: the keys of releases and of questions.
fn queued(core: &Core) -> Vec<String> {
    let shown = |origin: &AskedBy| match origin {
        AskedBy::Reap(reap) => format!("release {}", reap.names().main()),
        AskedBy::Lock(id, _) => format!("ask for {}", id.main),
        other => format!("{other:?}"),
    };
    core.only_path().traffic().origins().map(shown).collect()
}

/// The release of a hold of this key, and the outcome that its caller waits for.
pub(super) fn release_of(key: &str) -> (Box<Reap>, Confirmed) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand(key));
    let confirmed = bench.release(&hold);
    (bench.released().take(), confirmed)
}

/// The same after a try of unknown outcome.
pub(super) fn owed(key: &str) -> Box<Reap> {
    let (now, what) = (Moment::now(), Fault::new(FaultClass::Unknown, "the outcome is unknown"));
    match release_of(key).0.outcome(Outcome::Unknown(what), now, now) {
        (_, Next::Again(_, reap)) => reap,
        other => panic!("{other:?}"),
    }
}

/// Has a core owe such a release at a later time.
pub(super) fn owe(core: &Core, later: Moment, key: &str) {
    let mut reap = owed(key);
    reap.begin(&core.pending, || core.number());
    core.reaper.lock().add(later, reap);
}

/// A core without its connection.
fn unconnected(locks: &Locks) -> Arc<Core> {
    let core = Arc::clone(locks.link().core());
    drop(core.only_path().traffic().drain());
    core
}

#[test]
fn a_time_limit_without_end_ends_no_engine() {
    let server = Server::start();
    let locks = Locks::builder().url(server.url()).command_timeout(Duration::MAX).open().unwrap();
    let guard = locks.mutex("job").blocking_acquire().unwrap();
    server.freeze();
    let other = thread::spawn({
        let request = locks.mutex("other").wait(PATIENCE);
        move || request.blocking_acquire()
    });
    let names = demand("other").names;
    eventually(PATIENCE, "the other one waits", || {
        locks.link().views(names.main()).iter().any(|view| view.waiters.len() == 1)
    });
    // The engine looks at the open question at least once a second.
    holds_for(2 * Duration::from_secs(1), "the engine runs", || guard.state() != LockState::Lost);
    server.thaw();
    other.join().unwrap().unwrap().blocking_release().unwrap();
    guard.blocking_release().unwrap();
}

#[test]
fn what_is_owed_for_a_key_is_sent_before_the_key_is_asked_for_again() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = unconnected(&locks);
    let later = Moment::now().after(PATIENCE);
    for key in ["job", "other", "job"] {
        owe(&core, later, key);
    }
    let mut waiting = pin!(locks.mutex("job").acquire());
    assert!(waiting.as_mut().now_or_never().is_none(), "nothing is connected");
    let main = |key| demand(key).names.main().to_owned();
    let release = format!("release {}", main("job"));
    let expected = [release.clone(), release, format!("ask for {}", main("job"))];
    assert_eq!(queued(&core), expected);
    assert_eq!(core.reaper.lock().reaps().count(), 1, "the other one has time");
    end(&core);
    assert!(matches!(waiting.now_or_never(), Some(Err(LockError::Shutdown))));
}

#[test]
fn a_release_that_failed_with_a_question_of_its_key_is_sent_before_the_next_one() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = unconnected(&locks);
    let mut waiting = pin!(locks.mutex("job").acquire());
    assert!(waiting.as_mut().now_or_never().is_none(), "nothing is connected");
    let (asked, _) = core.only_path().traffic().drain();
    let failed = |entry: QueueEntry| {
        entry.settled(Outcome::Unknown(Fault::new(FaultClass::Unknown, "the outcome is unknown")))
    };
    core.act(|work| {
        work.settled.extend(asked.into_iter().map(failed));
        let mut reap = owed("job");
        reap.begin(&core.pending, || core.number());
        work.settled.push(failed(QueueEntry::reap(reap, Moment::now())));
    });
    let main = demand("job").names.shared_main();
    assert_eq!(queued(&core), [format!("release {main}"), format!("ask for {main}")]);
    end(&core);
    assert!(matches!(waiting.now_or_never(), Some(Err(LockError::Shutdown))));
}

/// The connection may be down again before its news are handled.
#[test]
fn releases_that_are_refused_at_once_are_not_put_again_and_again() {
    let locks = Locks::in_memory();
    let core = Arc::clone(locks.link().core());
    core.only_path().traffic().end();
    owe(&core, Moment::now(), "job");
    core.act(|work| core.put_reaps(super::reaper::Reaper::drain, work));
    assert_eq!(core.reaper.lock().reaps().count(), 1, "it waits for its next try");
    core.act(|work| core.fail(&LockError::Shutdown, &LossReason::Shutdown, work));
}

#[test]
fn no_call_waits_for_an_engine_that_has_ended() {
    let locks = Locks::in_memory();
    let core = Arc::clone(locks.link().core());
    core.act(|work| core.end(work));
    let (ready, mut readiness) = tokio::sync::oneshot::channel();
    let mut results = Results::default();
    for _ in 0..2 {
        drop(core.only_path().traffic().drain());
    }
    core.only_path().traffic().when_ready(ready, &mut results);
    assert_eq!(results.told.len(), 1, "it is refused at once");
    drop(results);
    assert!(readiness.try_recv().is_err());
}

fn end(core: &Core) {
    core.act(|work| core.fail(&LockError::Shutdown, &LossReason::Shutdown, work));
}

/// How long this thread has worked, whatever else the machine does.
#[cfg(target_os = "linux")]
fn worked() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap()
}

/// How long it takes to acquire and release this number of read locks at once.
#[cfg(target_os = "linux")]
fn crowd(count: usize) -> (Duration, Duration, Duration) {
    let locks = Locks::in_memory();
    let start = worked();
    let guards: Vec<_> =
        (0..count).map(|_| locks.read("shelf").blocking_acquire().unwrap()).collect();
    let taken = worked() - start;
    let start = worked();
    let status = crate::api::blocking::block_on(locks.status("shelf")).unwrap();
    assert_eq!(status.holders.len(), count);
    let listed = worked() - start;
    let start = worked();
    drop(guards);
    (taken, listed, worked() - start)
}

#[cfg(target_os = "linux")]
#[test]
fn thousands_of_readers_of_one_key_cost_no_more_each_than_a_few() {
    let least = |count, runs| {
        let runs = (0..runs).map(|_| crowd(count));
        let least = runs.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1), a.2.min(b.2)));
        least.unwrap()
    };
    let (few, many) = (least(2_000, 4), least(8_000, 3));
    println!("2,000 readers: {few:?}; 8,000: {many:?}");
    for (few, many) in [(few.0, many.0), (few.1, many.1), (few.2, many.2)] {
        // Four times as many: 4 where each costs the same, 16 where each looks at all others. What
        // lies between is what a busy machine may add.
        assert!(many <= few * 8 + Duration::from_millis(40), "{few:?} {many:?}");
    }
}

#[test]
fn an_engine_does_not_end_while_somebody_has_outcomes_in_hand() {
    let locks = Locks::in_memory();
    let core = locks.link().core();
    let place = core.places.only().unwrap();
    for stage in [LifeStage::Closing(Some(Moment::NEVER)), LifeStage::Abandoned] {
        core.life.advance(|_| Some(stage));
        let hand = place.path.traffic().take_in_hand();
        assert!(!core.is_done(Moment::now()), "{stage:?}");
        drop(hand);
        assert!(core.is_done(Moment::now()), "{stage:?}");
    }
}

#[test]
fn a_step_that_panics_costs_its_own_lock_and_no_other() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let request = |key: &str| locks.mutex(key).ttl(PATIENCE).wait(PATIENCE);
    let (spoiled, other) = (request("a"), request("b"));
    let (spoiled, other) = (spoiled.blocking_acquire().unwrap(), other.blocking_acquire().unwrap());
    let waiting = thread::spawn({
        let request = request("a");
        move || request.blocking_acquire()
    });
    let names = demand("a").names;
    eventually(PATIENCE, "the other one waits", || {
        locks.link().views(names.main()).iter().any(|view| view.waiters.len() == 1)
    });
    locks.link().ask(&LockId::mutex(names.main()), |_, _| panic!("a planted bug"));

    eventually(PATIENCE, "the holder learns of its loss", || spoiled.state() == LockState::Lost);
    let outcome = waiting.join().unwrap();
    assert!(
        matches!(&outcome, Err(LockError::Backend { source }) if source.to_string().contains("bug")),
        "{outcome:?}"
    );
    drop(spoiled);
    request("a").blocking_acquire().unwrap().blocking_release().unwrap();
    other.blocking_verify().unwrap();
    other.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_token_in_the_hands_of_a_step_that_panics_is_released() {
    const LONG: Duration = PATIENCE.saturating_mul(6);
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| Locks::open(server.url()).unwrap());
    let names = demand("a").names;
    let panic_in_step = || {
        let id = LockId::mutex(names.main());
        locks.link().ask(&id, |machine, env| machine.break_while_moved(env));
    };
    let guard = locks.mutex("a").ttl(LONG).blocking_acquire().unwrap();
    panic_in_step();
    assert_eq!(guard.state(), LockState::Lost);
    eventually(PATIENCE, "what was held is free", || !server.exists("lock:a"));
    drop(guard);

    have_a_lease_linger(&locks, "a");
    panic_in_step();
    eventually(PATIENCE, "what lingered is free", || !server.exists("lock:a"));

    let held = other.mutex("a").ttl(LONG).blocking_acquire().unwrap();
    let request = locks.mutex("a").wait(PATIENCE);
    let waiting = thread::spawn(move || request.blocking_acquire());
    eventually(PATIENCE, "it has queued", || server.keys().iter().any(|key| key.ends_with("~q")));
    panic_in_step();
    let outcome = waiting.join().unwrap();
    assert!(matches!(&outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    held.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_release_that_panics_is_no_success() {
    let locks = Locks::in_memory();
    let guard = locks.mutex("a").blocking_acquire().unwrap();
    let id = LockId::mutex(demand("a").names.main());
    let outcome =
        locks.link().release(&id, guard.hold(), &Finish::Release, || panic!("a planted bug"));
    assert!(matches!(outcome, Some(Err(LockError::Backend { .. }))), "{outcome:?}");
    drop(guard);
    locks.mutex("a").blocking_acquire().unwrap().blocking_release().unwrap();
}

#[test]
fn that_no_caller_wants_a_lock_any_more_is_no_outage() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = locks.link().core();
    let is_outage = |what: &'static str| {
        let refused = Outcome::Refused(Fault::new(FaultClass::Refused, what));
        core.note_outcome(core.places.only().unwrap(), &refused);
        core.outages.are_any()
    };
    assert!(!is_outage(UNWANTED));
    assert!(is_outage("the server has no room"));
}
