use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use testbed::{Server, eventually, holds_for};

use super::path::{InHand, Origin, Reader, Settled};
use super::thread_reader::ReadingCall;
use crate::domain::clock::Moment;
use crate::domain::demand::tests::demand;
use crate::domain::env::simulated;
use crate::domain::error::{Fault, FaultClass};
use crate::lock::tests::Bench;
use crate::lock::{Next, Outcome, Reap};
use crate::store::Parker;
use crate::{LockError, LockState, Locks};

const PATIENCE: Duration = Duration::from_secs(10);
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
    thread::sleep(Duration::from_millis(100));
    locks.link().crash();

    eventually(PATIENCE, "the holder is told", || guard.state() == LockState::Lost);
    let outcome = waiting.join().unwrap();
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    let error = guard.ensure(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("engine failed"), "{error}");
    assert!(guard.blocking_release().is_err_and(|error| error.is_lost()));

    // The new engine renews and releases as the old one did.
    let guard = request().blocking_acquire().unwrap();
    holds_for(TTL * 3, "it is renewed", || guard.state() == LockState::Held);
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn an_engine_that_starts_beside_a_shutdown_ends_and_keeps_nobody_waiting() {
    let locks = Locks::in_memory();
    locks.blocking_shutdown();
    // As a request does that found it open a moment before.
    locks.link().start();
    let ended = thread::spawn(move || locks.blocking_shutdown());
    eventually(PATIENCE, "the second shutdown returns", || ended.is_finished());
}

pub(super) fn reader(locks: &Locks) -> Reader {
    locks.link().core().only_path().traffic().reader()
}

pub(super) async fn pairs(locks: Locks, count: usize) {
    for _ in 0..count {
        locks.mutex("warm").acquire().await.unwrap().release().await.unwrap();
    }
}

#[test]
fn a_task_of_a_busy_runtime_reads_and_the_engine_when_it_has_ended() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let pairs = |count| pairs(locks.clone(), count);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async { tokio::spawn(pairs(20)).await.unwrap() });
    assert_eq!(reader(&locks), Reader::Engine, "a few commands are not worth it");
    runtime.block_on(async { tokio::spawn(pairs(400)).await.unwrap() });
    assert_eq!(reader(&locks), Reader::Engine, "a runtime without I/O can't read");
    drop(runtime);
    let runtime = two_workers();
    let reads = Reader::Task(runtime.handle().id());
    // On a busy machine the engine may take the role back meanwhile.
    eventually(PATIENCE, "a task reads", || {
        runtime.block_on(async { tokio::spawn(pairs(400)).await.unwrap() });
        reader(&locks) == reads
    });
    drop(runtime);
    eventually(PATIENCE, "the engine reads again", || reader(&locks) == Reader::Engine);
    locks.mutex("after").blocking_acquire().unwrap().blocking_release().unwrap();
    server.assert_clean();
}

pub(super) fn blocking_pairs(locks: &Locks, count: usize) {
    for _ in 0..count {
        locks.mutex("warm").blocking_acquire().unwrap().blocking_release().unwrap();
    }
}

#[test]
fn a_thread_that_waits_reads_and_nobody_between_its_calls() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    blocking_pairs(&locks, 20);
    assert_eq!(reader(&locks), Reader::Engine, "a few commands are not worth it");
    // On a busy machine the engine may take the role meanwhile.
    let reads = || {
        blocking_pairs(&locks, 1);
        reader(&locks) == Reader::Nobody
    };
    blocking_pairs(&locks, 200);
    eventually(PATIENCE, "the thread reads", reads);
    // What is not waited for here is for the engine to read.
    drop(locks.mutex("dropped").blocking_acquire().unwrap());
    eventually(PATIENCE, "it is released", || server.keys().is_empty());
    assert_eq!(reader(&locks), Reader::Engine);
    eventually(PATIENCE, "the thread reads", reads);
    eventually(PATIENCE, "the engine watches again", || reader(&locks) == Reader::Engine);
    blocking_pairs(&locks, 1);
    server.assert_clean();
}

#[test]
fn a_thread_that_reads_is_woken_by_others_and_never_late() {
    let server = Server::start();
    let limit = Duration::from_millis(500);
    let locks = Locks::builder().url(server.url()).command_timeout(limit).open().unwrap();
    blocking_pairs(&locks, 300);
    // The engine tells it, while it waits at a socket where nothing comes.
    server.freeze();
    let start = Instant::now();
    let outcome = locks.mutex("frozen").wait(limit).blocking_acquire();
    assert!(start.elapsed() < limit * 2 + PATIENCE / 4, "{:?}", start.elapsed());
    assert!(outcome.is_err());
    server.thaw();
    eventually(PATIENCE, "no lock is left", || !server.exists("lock:frozen"));
    blocking_pairs(&locks, 300);
    // A restart is noticed, whoever reads.
    server.restart();
    eventually(PATIENCE, "it works again", || locks.mutex("after").blocking_acquire().is_ok());
    eventually(PATIENCE, "no lock is left", || !server.exists("lock:after"));
    server.assert_clean();
}

#[test]
fn a_forked_copy_of_a_thread_that_reads_leaves_the_connection_alone() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    blocking_pairs(&locks, 300);
    let core = locks.link().core();
    server.freeze();
    let asking = thread::spawn({
        let request = locks.mutex("asked").no_wait();
        move || request.blocking_acquire()
    });
    let path = core.only_path();
    eventually(PATIENCE, "an answer is to come", || path.traffic().expects_answers());
    let (epoch, change) = {
        let mut traffic = path.traffic();
        (traffic.epoch().unwrap(), traffic.set_reader(Reader::Engine))
    };
    core.note_asked();
    let parker = Parker::new();
    {
        let _still = Still::begin();
        simulated::set_process(u32::MAX);
        super::thread_reader::wait(&parker, Some(Duration::from_millis(1)));
    }
    assert!(path.traffic().is_read_by(epoch, change), "it has taken the role");
    core.waker.wake();
    server.thaw();
    drop(asking.join().unwrap());
}

#[test]
fn what_a_thread_asked_is_forgotten_when_its_call_ends() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let core = locks.link().core();
    {
        let _call = ReadingCall::begin();
        let inner = ReadingCall::begin();
        core.note_asked();
        drop(inner);
        assert!(super::thread_reader::has_asked());
    }
    assert!(!super::thread_reader::has_asked());
}

#[test]
fn a_runtime_that_nobody_drives_has_one_task_that_is_to_read() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    for _ in 0..1000 {
        drop(locks.mutex("dropped").blocking_acquire().unwrap());
    }
    assert!(runtime.metrics().num_alive_tasks() <= 1);
    eventually(PATIENCE, "nothing is left", || server.keys().is_empty());
    server.assert_clean();
}

#[test]
fn an_engine_that_has_ended_leaves_nobody_else_reading() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    blocking_pairs(&locks, 1);
    let path = locks.link().core().only_path();
    path.traffic().set_reader(Reader::Nobody);
    let drained = path.traffic().drain();
    drop(drained);
    assert_eq!(reader(&locks), Reader::Engine);
}

#[test]
fn threads_and_tasks_that_wait_side_by_side_all_get_their_answers() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let held = locks.mutex("renewed").ttl(Duration::from_millis(300)).blocking_acquire().unwrap();
    let runtime = two_workers();
    let task = runtime.spawn(pairs(locks.clone(), 2000));
    thread::scope(|scope| {
        for number in 0..4 {
            let locks = &locks;
            scope.spawn(move || {
                for round in 0..1000 {
                    // Keys of its own, and one for which all wait.
                    let key = if round % 10 == 0 { "all".into() } else { format!("own:{number}") };
                    locks.mutex(key).blocking_acquire().unwrap().blocking_release().unwrap();
                }
            });
        }
    });
    runtime.block_on(task).unwrap();
    assert!(held.is_held());
    held.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_task_of_a_current_thread_runtime_reads_until_nobody_drives_it() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reads = Reader::Task(runtime.handle().id());
    for _ in 0..3 {
        eventually(PATIENCE, "a task reads", || {
            runtime.block_on(pairs(locks.clone(), 400));
            reader(&locks) == reads
        });
        // An answer to somebody else waits until the engine takes the role back, and no further one.
        locks.mutex("other").blocking_acquire().unwrap().blocking_release().unwrap();
        assert_eq!(reader(&locks), Reader::Engine);
    }
    server.assert_clean();
}

#[test]
fn what_lingers_goes_when_nobody_is_left() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let mut request = locks.mutex("job").ttl(PATIENCE * 3);
    request.options.linger = Some(PATIENCE * 2);
    eventually(PATIENCE, "its lease stays", || {
        request.clone().blocking_acquire().unwrap().blocking_release().unwrap();
        !locks.link().core().is_at_rest()
    });
    drop((request, locks));
    server.assert_clean();
}

#[test]
fn what_lingers_is_not_in_the_way_of_several_keys() {
    let locks = Locks::in_memory();
    let mut request = locks.mutex("a").ttl(PATIENCE * 3);
    request.options.linger = Some(PATIENCE * 2);
    eventually(PATIENCE, "its lease stays", || {
        request.clone().blocking_acquire().unwrap().blocking_release().unwrap();
        !locks.link().core().is_at_rest()
    });
    let both = locks.all(["a", "b"]).blocking_try_acquire().unwrap();
    assert!(both.is_some(), "nobody is inside");
}

/// A world of its own: no thread, and a clock that stands still.
struct Still;

impl Still {
    fn begin() -> Self {
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
    core.stop_paths();
    let mut waiting = pin!(locks.mutex("job").acquire());
    assert!(waiting.as_mut().now_or_never().is_none(), "it asks again when something is connected");
    // In tests a token that is dropped, and not given up, is a panic.
    end(&core);
    let outcome = waiting.now_or_never();
    assert!(matches!(outcome, Some(Err(LockError::Shutdown))), "{outcome:?}");
    assert!(core.is_at_rest());
}

/// What stands on the queue, in order: the keys of releases and of questions.
fn queued(core: &super::core::Core) -> Vec<String> {
    let shown = |origin: &Origin| match origin {
        Origin::Reap(reap) => format!("release {}", reap.names().main()),
        Origin::Lock(id, _) => format!("ask for {}", id.main),
        other => format!("{other:?}"),
    };
    core.only_path().traffic().origins().map(shown).collect()
}

/// The release of a hold of this key, after a try of unknown outcome.
pub(super) fn owed(key: &str) -> Box<Reap> {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand(key));
    drop(bench.release(&hold));
    let (now, what) = (Moment::now(), Fault::new(FaultClass::Unknown, "nobody knows"));
    match bench.released().take().outcome(Outcome::Unknown(what), now, now) {
        (_, Next::Again(_, reap)) => reap,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_owed_for_a_key_is_sent_before_the_key_is_asked_for_again() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = Arc::clone(locks.link().core());
    let later = Moment::now().after(PATIENCE);
    for key in ["job", "other", "job"] {
        core.reaper().add(later, owed(key));
    }
    let mut waiting = pin!(locks.mutex("job").acquire());
    assert!(waiting.as_mut().now_or_never().is_none(), "nothing is connected");
    let main = |key| demand(key).names.main().to_owned();
    let release = format!("release {}", main("job"));
    let expected = [release.clone(), release, format!("ask for {}", main("job"))];
    assert_eq!(queued(&core), expected);
    assert_eq!(core.reaper().reaps().count(), 1, "the other one has time");
    end(&core);
    assert!(matches!(waiting.now_or_never(), Some(Err(LockError::Shutdown))));
}

#[test]
fn a_release_that_failed_with_a_question_of_its_key_is_sent_before_the_next_one() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = Arc::clone(locks.link().core());
    let mut waiting = pin!(locks.mutex("job").acquire());
    assert!(waiting.as_mut().now_or_never().is_none(), "nothing is connected");
    let (asked, _) = core.only_path().traffic().drain();
    let failed = |origin| {
        let outcome = Outcome::Unknown(Fault::new(FaultClass::Unknown, "nobody knows"));
        Settled::Done { origin, sent: Moment::now(), outcome, hand: InHand::default() }
    };
    core.act(|work| {
        work.settled.extend(asked.into_iter().map(failed));
        work.settled.push(failed(Origin::Reap(owed("job"))));
    });
    let main = demand("job").names.shared_main();
    assert_eq!(queued(&core), [format!("release {main}"), format!("ask for {main}")]);
    end(&core);
    assert!(matches!(waiting.now_or_never(), Some(Err(LockError::Shutdown))));
}

fn end(core: &super::core::Core) {
    core.act(|work| core.end_all(&LockError::Shutdown, "the test is over", work));
}

pub(super) fn two_workers() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// How long this thread has worked, whatever else the machine does.
#[cfg(target_os = "linux")]
fn worked() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap()
}

/// How long it takes to take and give back a lock for reading so many times at once.
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
    *core.closing.lock().unwrap() = Some(Moment::NEVER);
    for is_closing in [true, false] {
        if !is_closing {
            core.closing.lock().unwrap().take();
            core.is_abandoned.store(true, Ordering::Release);
        }
        let hand = place.path.traffic().take_in_hand();
        assert!(!core.is_done(Moment::now()), "closing: {is_closing}");
        drop(hand);
        assert!(core.is_done(Moment::now()), "closing: {is_closing}");
    }
}
