//! Nothing of what is over stays behind.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use testbed::{Server, eventually};

use super::lock_id::LockId;
use super::reading_tests::{
    assert_no_task, have_a_task_read, reader, server_and_locks, two_workers,
};
use super::tests::PATIENCE;
use crate::domain::clock::Moment;
use crate::{Guard, Locks};

const KEYS: usize = 200;

/// Holds, tries beside them, waits that are given up, hand-overs: on many keys at once.
fn contend(one: &Locks, other: &Locks) {
    let key = |number: usize| format!("key:{number}");
    let guards: Vec<Guard> =
        (0..KEYS).map(|number| one.mutex(key(number)).blocking_acquire().unwrap()).collect();
    for number in 0..KEYS {
        for locks in [one, other] {
            assert!(locks.mutex(key(number)).blocking_try_acquire().unwrap().is_none());
        }
        let wait = other.mutex(key(number)).wait(Duration::from_millis(1));
        assert!(wait.blocking_acquire().is_err_and(|error| error.is_busy()));
    }
    drop(guards);
    for number in 0..KEYS {
        let guard = other.mutex(key(number)).wait(PATIENCE).blocking_acquire().unwrap();
        let read = other.read(format!("read:{number}")).blocking_acquire().unwrap();
        drop((guard, read));
    }
}

/// Looking at a lock that is held costs more than anything else in its renewal: by then its memory has
/// left the caches.
#[test]
fn between_two_renewals_no_timer_of_a_held_lock_rings() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    testbed::must_be_prompt(Duration::from_millis(2_800), "a timer rings at its limit", || {
        let (begun, now) = (Instant::now(), Moment::now());
        let guard = locks.mutex("a").ttl(Duration::from_secs(6)).blocking_acquire().unwrap();
        // The first renewal is after two seconds and its time limit a second later, which is over with the
        // answer; the second renewal is after four.
        let second = now.after(Duration::from_millis(3_300));
        let core = locks.link().core();
        eventually(PATIENCE, "it is renewed", || core.table.next_due() > second);
        let taken = begun.elapsed();
        guard.blocking_release().unwrap();
        taken
    });
    locks.blocking_shutdown();
}

fn assert_at_rest(locks: &Locks) {
    let core = locks.link().core();
    eventually(PATIENCE, "nothing is left in any table", || core.is_at_rest());
}

#[test]
fn contended_keys_leave_nothing_in_any_table_in_memory() {
    let locks = Locks::in_memory();
    for _ in 0..3 {
        contend(&locks, &locks);
        assert_at_rest(&locks);
    }
}

#[test]
fn contended_keys_leave_nothing_in_any_table_beside_a_server() {
    let server = Server::start();
    let (one, other) = (Locks::open(server.url()).unwrap(), Locks::open(server.url()).unwrap());
    for _ in 0..2 {
        contend(&one, &other);
        assert_at_rest(&one);
        assert_at_rest(&other);
    }
    one.blocking_shutdown();
    other.blocking_shutdown();
    server.assert_clean();
}

/// How much memory this process has in use, in KiB.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
}

/// Takes turns at a key for as long as it may.
async fn take_turns(locks: Locks, key: String, until: Instant, turns: Arc<AtomicU64>) {
    while Instant::now() < until {
        let guard = locks.mutex(&key).wait(PATIENCE).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        guard.release().await.unwrap();
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// With `MEMORY_SECONDS` it runs for so long; started by `cargo xtask memory`.
#[test]
#[ignore = "it takes minutes; `cargo xtask memory` runs it"]
fn the_memory_of_contended_keys_stays_as_it_is() {
    let seconds = std::env::var("MEMORY_SECONDS").ok().and_then(|it| it.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(600));
    let server = Server::start();
    let both = [Locks::open(server.url()).unwrap(), Locks::open(server.url()).unwrap()];
    let runtime = two_workers();
    let (turns, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let tasks: Vec<_> = (0..80)
        .map(|task| {
            let (locks, key) = (both[task % 2].clone(), format!("hot:{}", task / 4));
            runtime.spawn(take_turns(locks, key, start + lasts, Arc::clone(&turns)))
        })
        .collect();
    // What is made once has been made after a tenth of the time.
    std::thread::sleep(lasts / 10);
    let before = resident();
    let mut most = before;
    while start.elapsed() < lasts {
        std::thread::sleep(lasts / 20);
        most = most.max(resident());
    }
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    let grown = most.saturating_sub(before);
    println!(
        "{} turns in {lasts:?}: {before} KiB, then {grown} KiB more at the most",
        turns.load(Ordering::Relaxed)
    );
    both.iter().for_each(assert_at_rest);
    server.assert_clean();
    assert!(grown <= 2_048, "it grew by {grown} KiB");
}

#[test]
fn the_engine_reads_again_when_tasks_have_asked_nothing_for_a_while() {
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    have_a_task_read(&locks, &runtime);
    // Renewals are no reason for another thread to read.
    let held = locks.mutex("held").ttl(Duration::from_secs(3)).blocking_acquire().unwrap();
    eventually(PATIENCE, "the engine reads again", || reader(&locks).is_none());
    assert_no_task(&runtime);
    have_a_task_read(&locks, &runtime);
    held.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn calls_for_the_same_keys_wait_in_one_line_and_others_beside_it() {
    let locks = Locks::in_memory();
    let held = locks.mutex("b").blocking_acquire().unwrap();
    let wait = |keys: [&str; 2]| {
        let mut waiting = Box::pin(locks.all(keys).acquire());
        let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (waiting, polled.is_ready())
    };
    let same: Vec<_> = (0..4).map(|_| wait(["a", "b"])).collect();
    let views = locks.link().views("lock:a");
    assert_eq!(views.iter().filter(|view| view.queued.is_some()).count(), 2, "{views:?}");
    assert_eq!(views.iter().filter(|view| view.queued.is_none()).count(), 2, "{views:?}");
    // `a` and `c` are free.
    assert!(wait(["a", "c"]).1, "it waits behind those who want `b`");
    held.blocking_release().unwrap();
    for (waiting, is_ready) in same {
        assert!(!is_ready);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        drop(runtime.block_on(waiting).unwrap());
    }
    assert!(locks.link().core().table.is_empty());
}

#[test]
fn a_lock_knows_when_its_server_has_answered_a_question_about_another_one() {
    let locks = Locks::in_memory();
    let (_held, core) = (locks.mutex("k").blocking_acquire().unwrap(), locks.link().core());
    let before = Moment::now();
    locks.mutex("other").blocking_acquire().unwrap().blocking_release().unwrap();
    let mut answered = Moment::START;
    core.act(|work| {
        core.step(&LockId::mutex("lock:k"), work, |_, env| answered = env.answered);
    });
    assert!(answered >= before);
}
