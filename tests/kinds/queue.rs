//! `queue`: how many calls wait in line at the server, over all processes.

use redis_locks::{Idle, LockError, LockRequest, Locks, Wait};
use testbed::{Child, ChildIo, eventually};

use crate::arena::{Arena, PATIENCE, Waiting, is_free, ms, queued, refused, take};

/// Each way in which a server executes steps as one.
fn arenas() -> Vec<Arena> {
    let mut arenas = Arena::each();
    arenas.push(Arena::without_scripts());
    arenas
}

fn one_waits(locks: &Locks) -> LockRequest {
    locks.mutex("k").queue(1)
}

#[track_caller]
fn must_be_crowded(request: LockRequest, so_many: usize) {
    let error = refused(request.wait(PATIENCE));
    let LockError::Crowded { key, waiting, in_line: true, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(error.is_busy() && key == "k" && *waiting == so_many, "{error:?}");
    assert!(error.to_string().contains("in line at the server"), "{error}");
}

#[track_caller]
fn waits(arena: &Arena, request: LockRequest, as_number: usize) -> Waiting {
    let waiting = Waiting::start(request);
    eventually(PATIENCE, "it waits in line", || queued(arena, "k") == as_number);
    waiting
}

#[test]
fn one_call_waits_whichever_process_it_is_of_and_the_next_is_refused() {
    for arena in arenas() {
        // The process that has the lock counts like any other.
        for (holder, first) in [(&arena.one, &arena.one), (&arena.one, &arena.other)] {
            let held = take(one_waits(holder));
            let next = waits(&arena, one_waits(first), 1);
            for locks in [&arena.one, &arena.other] {
                must_be_crowded(one_waits(locks), 1);
                must_be_crowded(one_waits(locks).max_waiters(9), 1);
                assert!(!is_free(locks.mutex("k")), "{}", arena.name);
            }
            assert_eq!(queued(&arena, "k"), 1, "{}: a refused call leaves nothing", arena.name);
            let second = waits(&arena, arena.other.mutex("k").queue(2), 2);
            must_be_crowded(arena.one.mutex("k").queue(2), 2);
            held.blocking_release().unwrap();
            next.must_have_it();
            next.finish();
            second.must_have_it();
            second.finish();
            arena.assert_clean();
        }
    }
}

#[test]
fn calls_without_queue_have_one_place_for_each_process() {
    for arena in arenas() {
        let held = take(one_waits(&arena.one));
        let plain: Vec<_> = (0..3).map(|_| Waiting::start(arena.third().mutex("k"))).collect();
        eventually(PATIENCE, "they wait", || queued(&arena, "k") == 3);
        let places = if arena.name == "memory" { 1 } else { 3 };
        must_be_crowded(arena.other.mutex("k").queue(places), places);
        let more = waits(&arena, arena.other.mutex("k").queue(places + 1), 4);
        // What has no limit joins any line.
        let last = Waiting::start(arena.one.mutex("k"));
        held.blocking_release().unwrap();
        crate::arena::finish_all(plain.into_iter().chain([more, last]).collect());
        arena.assert_clean();
    }
}

#[test]
fn readers_writers_and_permits_are_counted_too() {
    for arena in Arena::each() {
        let held = take(arena.one.write("k"));
        let next = waits(&arena, arena.other.read("k").queue(1), 1);
        must_be_crowded(arena.one.read("k").queue(1), 1);
        must_be_crowded(arena.other.write("k").queue(1), 1);
        held.blocking_release().unwrap();
        next.finish();
        let held = take(arena.one.permit("k", 1));
        let next = waits(&arena, arena.other.permit("k", 1).queue(1), 1);
        must_be_crowded(arena.one.permit("k", 1).queue(1), 1);
        held.blocking_release().unwrap();
        next.finish();
        arena.assert_clean();
    }
}

#[test]
fn a_process_that_died_in_line_is_not_counted() {
    let mut arenas = arenas();
    arenas.retain(|arena| arena.server.is_some());
    for arena in arenas {
        let held = take(one_waits(&arena.one));
        let url = arena.server.as_ref().unwrap().url();
        let mut child = Child::spawn("queue_waits_until_killed", &[("SERVER", &url)]);
        eventually(PATIENCE, "it waits in line", || queued(&arena, "k") == 1);
        must_be_crowded(one_waits(&arena.other), 1);
        // A waiter that gets no messages yet may only be slow.
        let server = arena.server.as_ref().unwrap();
        eventually(PATIENCE, "it listens", || {
            let places: Vec<String> = server.run("HVALS lock:{lock:k}:~w");
            places.iter().all(|place| place.contains("~m:"))
        });
        child.kill9();
        // The server needs a moment to notice. A call that is refused must not wait for that.
        let mut next = None;
        eventually(ms(3_000), &format!("the dead process is not counted: {}", arena.name), || {
            let waits = one_waits(&arena.other).wait(PATIENCE);
            let thread = std::thread::spawn(move || waits.blocking_acquire());
            eventually(PATIENCE, "it waits, or was refused", || {
                thread.is_finished() || queued(&arena, "k") == 1 && !has_child(&arena)
            });
            next = Some(thread).filter(|thread| !thread.is_finished());
            next.is_some()
        });
        held.blocking_release().unwrap();
        next.unwrap().join().unwrap().unwrap().blocking_release().unwrap();
        arena.assert_clean();
    }
}

/// Waits in line until it is killed.
pub(crate) fn waits_until_killed(_: &mut ChildIo) {
    let locks = Locks::open(std::env::var("SERVER").unwrap()).unwrap();
    let _ = one_waits(&locks).label("dies").blocking_acquire();
}

fn has_child(arena: &Arena) -> bool {
    let waiters = arena.one.blocking_status("k").unwrap().waiters;
    waiters.iter().any(|waiter| waiter.label.as_ref().is_some_and(|label| label.ends_with("dies")))
}

#[test]
fn an_idle_lease_of_its_own_process_is_taken_and_does_not_linger_again() {
    for arena in arenas() {
        let lingers = || arena.one.mutex("k").linger(PATIENCE);
        eventually(PATIENCE, "its lease stays", || {
            take(lingers()).blocking_release().unwrap();
            let status = arena.one.blocking_status("k").unwrap();
            status.holders.iter().any(|holder| matches!(holder.idle, Idle::Since(_)))
        });
        take(one_waits(&arena.one)).blocking_release().unwrap();
        let status = arena.one.blocking_status("k").unwrap();
        assert!(!status.is_held(), "{}: {status:?}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let locks = Locks::in_memory();
    let queue = || locks.mutex("k").queue(1);
    for (wrong, said) in [
        (locks.mutex("k").queue(0), "queue does not go with zero"),
        (queue().no_wait(), "queue does not go with no_wait"),
        (queue().wait(Wait::None), "queue does not go with no_wait"),
        (queue().linger(ms(100)), "queue does not go with linger"),
        (locks.all(["a", "b"]).queue(1), "queue does not go with several keys"),
    ] {
        let error = refused(wrong);
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let quorum = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let quorum = Locks::builder().quorum(quorum).open().unwrap();
    let error = refused(quorum.mutex("k").queue(1));
    assert!(error.to_string().contains("a quorum has no `queue`"), "{error}");
}
