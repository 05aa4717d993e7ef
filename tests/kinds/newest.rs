//! `newest`: the newest call ends older ones, of all processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use redis_locks::{ConfigError, LockError, LockRequest, Locks};
use testbed::{Server, ServerBinary, eventually};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::arena::{Arena, NOTIFIED, PATIENCE, Waiting, ms, queued, refused, take};

/// Each way in which a server executes steps as one.
fn arenas() -> Vec<Arena> {
    let mut arenas = Arena::each();
    arenas.push(Arena::without_scripts());
    arenas
}

fn newest(locks: &Locks) -> LockRequest {
    locks.mutex("k").newest().wait(PATIENCE)
}

#[track_caller]
fn is_superseded<T: std::fmt::Debug>(ended: Result<T, LockError>) {
    let error = ended.unwrap_err();
    assert!(matches!(&error, LockError::Superseded { key, .. } if key == "k"), "{error:?}");
    assert!(!error.is_busy() && !error.is_retryable() && !error.is_lost(), "{error:?}");
    assert!(error.key() == Some("k") && error.to_string().contains("newer call"), "{error}");
}

/// Runs a body that never ends by itself, and counts those that are in it.
fn endless(request: LockRequest, inside: &Arc<AtomicUsize>) -> JoinHandle<Result<(), LockError>> {
    struct Inside(Arc<AtomicUsize>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let inside = Arc::clone(inside);
    tokio::spawn(async move {
        let body = async move |_: &redis_locks::Guard| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
            let _inside = Inside(inside);
            std::future::pending::<()>().await;
        };
        request.run(body).await
    })
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(ms(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_call_ends_the_body_that_runs_and_then_begins() {
    for arena in tokio::task::block_in_place(arenas) {
        for (older, newer) in [(&arena.one, &arena.other), (&arena.one, &arena.one)] {
            let inside = Arc::new(AtomicUsize::new(0));
            let first = endless(newest(older), &inside);
            until("it runs", || inside.load(Ordering::SeqCst) == 1).await;
            let came = Instant::now();
            let second = endless(newest(newer), &inside);
            is_superseded(first.await.unwrap());
            assert!(came.elapsed() < NOTIFIED, "{}: {:?}", arena.name, came.elapsed());
            until("the newer one runs", || inside.load(Ordering::SeqCst) == 1).await;
            let third = newest(older).acquire().await.unwrap();
            is_superseded(second.await.unwrap());
            third.release().await.unwrap();
        }
        tokio::task::block_in_place(|| arena.assert_clean());
    }
}

#[test]
fn only_the_newest_call_waits_in_the_place_of_the_one_before() {
    for arena in arenas() {
        let held = take(arena.one.mutex("k"));
        let older: Vec<_> = [&arena.one, &arena.other, &arena.one]
            .into_iter()
            .zip(["1st", "2nd", "3rd"])
            .map(|(locks, label)| comes(&arena, newest(locks), label))
            .collect();
        eventually(PATIENCE, "one waits", || queued(&arena, "k") == 1);
        // A waiter without `newest` keeps its place.
        let plain = Waiting::start(arena.third().mutex("k"));
        eventually(PATIENCE, "both wait", || queued(&arena, "k") == 2);
        let last = Waiting::start(newest(&arena.other));
        let mut ended = older.into_iter().map(|thread| thread.join().unwrap());
        ended.by_ref().for_each(is_superseded);
        assert!(!held.is_superseded(), "it was asked for without `newest`");
        held.blocking_release().unwrap();
        last.must_have_it();
        plain.must_wait();
        last.finish();
        plain.finish();
        arena.assert_clean();
    }
}

/// The server has the older call on its list, and could not add the newer one.
#[test]
fn a_call_that_a_full_server_did_not_note_is_not_ended_by_an_older_one() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let held = take(arena.one.mutex("k"));
    drop(take(arena.other.mutex("warm")));
    let older = comes(&arena, newest(&arena.one), "older");
    server.run::<()>("CONFIG SET maxmemory 1");
    let monitor = server.monitor();
    let request = newest(&arena.other).label("newer");
    let newer = std::thread::spawn(move || request.blocking_acquire()?.blocking_release());
    eventually(PATIENCE, "it asks", || monitor.lines().iter().any(|it| it.contains("newer")));
    // The server executes this after the question.
    server.run::<()>("CONFIG SET maxmemory 0");
    let asked_again = || queued(&arena, "k") == 2 || newer.is_finished();
    eventually(PATIENCE, "it asks again", asked_again);
    held.blocking_release().unwrap();
    newer.join().unwrap().unwrap();
    older.join().unwrap().unwrap();
    arena.assert_clean();
}

#[test]
fn a_guard_says_that_a_newer_call_waits_and_keeps_the_lock() {
    for arena in arenas() {
        let older = take(newest(&arena.one));
        assert!(!older.is_superseded());
        let newer = comes(&arena, newest(&arena.other), "newer");
        eventually(PATIENCE, "it is told", || older.is_superseded());
        wait_for(older.superseded());
        assert!(older.is_held() && !newer.is_finished());
        older.blocking_verify().unwrap();
        // Ten more, of which the last one is next.
        let more = (0..10).map(|number| {
            let locks = if number % 2 == 0 { &arena.one } else { &arena.other };
            comes(&arena, newest(locks), &format!("more{number}"))
        });
        let mut more: Vec<_> = more.collect();
        more.insert(0, newer);
        older.blocking_release().unwrap();
        let ended: Vec<_> = more.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ended.last().unwrap().is_ok(), "{}: {ended:?}", arena.name);
        ended.into_iter().rev().skip(1).for_each(is_superseded);
        arena.assert_clean();
    }
}

/// Has a call come, and waits until it is in line.
fn comes(
    arena: &Arena,
    request: LockRequest,
    label: &str,
) -> std::thread::JoinHandle<Result<(), LockError>> {
    let request = request.label(label);
    let thread = std::thread::spawn(move || {
        request.blocking_acquire().map(|guard| guard.blocking_release().unwrap())
    });
    eventually(PATIENCE, "it waits", || {
        let is_it = |it: &String| it.ends_with(&format!(" {label}"));
        // A manager lists its own calls before the server knows them, so both have to see it.
        [&arena.one, &arena.other].iter().all(|locks| {
            let waiters = locks.blocking_status("k").unwrap().waiters;
            waiters.iter().any(|waiter| waiter.label.as_ref().is_some_and(is_it))
        })
    });
    thread
}

fn wait_for(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_result_of_a_body_that_has_ended_first_is_returned() {
    for arena in tokio::task::block_in_place(arenas) {
        let (other, name) = (arena.other.clone(), arena.name);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let body = async move |guard: &redis_locks::Guard| {
            let newer = tokio::spawn(newest(&other).acquire());
            // It does not yield any more.
            while !guard.is_superseded() {
                std::thread::sleep(ms(2));
            }
            sender.send(newer).unwrap();
            7
        };
        assert_eq!(newest(&arena.one).run(body).await.unwrap(), 7, "{name}");
        let newer = receiver.await.unwrap().await.unwrap().unwrap();
        newer.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_calls_that_a_server_refuses_the_later_one_stays() {
    if ServerBinary::any().version() < (6, 2, 0) {
        testbed::skip!("this server refuses no script for want of replicas, and counts no errors");
    }
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    locks.mutex("warm").acquire().await.unwrap().release().await.unwrap();
    server.run::<()>("CONFIG SET min-replicas-to-write 1");
    let mut older = tokio::spawn(newest(&locks).acquire());
    let refusals = || {
        let errors: String = server.run("INFO errorstats");
        let count = errors.split_once("errorstat_NOREPLICAS:count=").map(|(_, rest)| rest.trim());
        count.map_or(0, |count| count.split(char::is_whitespace).next().unwrap().parse().unwrap())
    };
    until("it asks again after a refusal", || refusals() > 1).await;
    // A call that was turned away runs for nobody, so it ends none.
    let away = newest(&locks).max_waiters(1).acquire().await.unwrap_err();
    assert!(matches!(away, LockError::Crowded { .. }), "{away:?}");
    assert!(timeout(ms(50), &mut older).await.is_err(), "no later call waits");
    let newer = tokio::spawn(newest(&locks).acquire());
    is_superseded(older.await.unwrap());
    server.run::<()>("CONFIG SET min-replicas-to-write 0");
    newer.await.unwrap().unwrap().release().await.unwrap();
    server.assert_clean();
}

#[test]
fn a_leader_is_not_superseded() {
    let error = Locks::in_memory().mutex("k").newest().blocking_lead(|_| ()).unwrap_err();
    let LockError::InvalidConfig { cause: ConfigError::Conflict { option, with, .. }, .. } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((*option, *with), ("newest", "blocking_lead"));
}

#[test]
fn what_does_not_go_with_newest_is_refused_by_name() {
    let locks = Locks::in_memory();
    let newest = || locks.mutex("k").newest();
    for (wrong, other) in [
        (newest().no_wait(), "no_wait"),
        (newest().min_hold(ms(100)), "min_hold"),
        (newest().never_expires(), "never_expires"),
        (newest().renew(false), "renew(false)"),
        (newest().fair(false), "fair(false)"),
        (newest().reentrant(), "reentrant"),
        (newest().linger(ms(100)), "linger"),
        (newest().once(ms(100)), "once"),
        (newest().queue(1), "queue"),
        (locks.all(["a", "b"]).newest(), "several keys"),
        (locks.read("k").newest(), "readers"),
        (locks.write("k").newest(), "writers"),
        (locks.permit("k", 2).newest(), "permits"),
    ] {
        let error = refused(wrong);
        let LockError::InvalidConfig {
            cause: ConfigError::Conflict { option: "newest", with: said, .. },
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert!(*said == other && error.to_string().contains("newest does not go with"), "{error}");
    }
    assert!(newest().blocking_try_acquire().is_err());
    let token = locks.mutex("k").blocking_acquire().unwrap().detach();
    assert!(newest().blocking_adopt(token.clone()).unwrap_err().to_string().contains("adopt"));
    locks.mutex("k").blocking_adopt(token).unwrap().blocking_release().unwrap();
    let quorum = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let quorum = Locks::builder().quorum(quorum).open().unwrap();
    let error = refused(quorum.mutex("k").newest());
    assert!(error.to_string().contains("a quorum has no `newest`"), "{error}");
}
