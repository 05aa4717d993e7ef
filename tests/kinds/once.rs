//! What is done once, and what `min_hold` keeps: values of their own at the key of a mutex.

use std::time::{Duration, Instant, SystemTime};

use redis_locks::{ConfigError, LockError, LockKind, LockRequest, Locks, Wait};
use testbed::{Turns, eventually};

use crate::arena::{Arena, PATIENCE, Waiting, is_free, ms, queued, take};

const HOUR: Duration = Duration::from_secs(3_600);

fn once(locks: &Locks) -> LockRequest {
    locks.mutex("k").once(HOUR)
}

/// Each way in which a server executes steps as one.
fn arenas() -> Vec<Arena> {
    let mut arenas = Arena::each();
    arenas.push(Arena::without_scripts());
    arenas
}

#[track_caller]
fn is_done(request: LockRequest) -> bool {
    match request.blocking_acquire() {
        Err(LockError::Done { key, at, .. }) => {
            assert_eq!(key, "k");
            assert!(at.elapsed().is_ok_and(|age| age < PATIENCE), "{at:?}");
            true
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_done_once_is_not_done_again() {
    for arena in arenas() {
        let label = "nightly run";
        take(once(&arena.one).label(label)).blocking_complete().unwrap();
        for wait in [Wait::None, Wait::Forever, Wait::For(ms(100))] {
            for locks in [&arena.one, &arena.other] {
                assert!(is_done(once(locks).wait(wait)), "{}: {wait:?}", arena.name);
            }
        }
        let error = once(&arena.other).blocking_try_acquire().unwrap_err();
        assert!(!error.is_busy() && !error.is_retryable() && error.key() == Some("k"), "{error:?}");
        let LockError::Done { by, until, .. } = &error else { panic!("{error:?}") };
        let left = until.duration_since(SystemTime::now()).unwrap();
        assert!(left <= HOUR && left > HOUR - PATIENCE, "{left:?}");
        assert!(error.to_string().contains("will not run again until 20"), "{error}");
        assert!(by.as_ref().is_some_and(|by| by.ends_with(label)), "{by:?}");
        assert!(error.to_string().contains("was completed at 20"), "{error}");
        let plain = arena.other.mutex("k").no_wait().blocking_acquire().unwrap_err();
        assert!(plain.is_busy() && plain.to_string().contains(", not held: "), "{plain}");
        let status = arena.other.blocking_status("k").unwrap();
        assert!(!status.is_held() && status.holders.is_empty(), "{status:?}");
        assert_eq!((status.kind, status.kept_until), (LockKind::Mutex, None));
        let done = status.done.unwrap();
        assert_eq!(done.by, *by);
        let left = done.until.duration_since(SystemTime::now()).unwrap();
        assert!(left <= HOUR && left > HOUR - PATIENCE, "{left:?}");
        let listed = arena.other.blocking_list("*").collect::<Result<Vec<_>, _>>().unwrap();
        assert!(listed.iter().any(|status| status.key == "k" && status.done.is_some()));
        assert!(arena.other.blocking_force_release("k", "again").unwrap(), "{}", arena.name);
        assert!(!arena.other.blocking_force_release("k", "again").unwrap(), "{}", arena.name);
        take(once(&arena.other)).blocking_release().unwrap();
        arena.assert_clean();
    }
}

#[test]
fn a_failure_lets_the_next_one_try_at_once() {
    for arena in arenas() {
        let guard = take(once(&arena.one));
        let next = Waiting::start(once(&arena.other));
        eventually(PATIENCE, "it waits", || queued(&arena, "k") == 1);
        guard.blocking_release().unwrap();
        next.must_have_it();
        next.finish();
        assert!(arena.one.blocking_status("k").unwrap().done.is_none(), "{}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn a_push_tells_waiters_that_the_work_was_done() {
    for arena in arenas() {
        let mut turns = Turns::of("those who wait are told at once that it was done");
        while turns.go_on() {
            let guard = take(once(&arena.one));
            let wait = |locks: &Locks| {
                let request = once(locks);
                std::thread::spawn(move || is_done(request))
            };
            let waiting: Vec<_> = [&arena.one, &arena.other].into_iter().map(wait).collect();
            let third = arena.third();
            let busy = Waiting::start(third.mutex("k").wait(PATIENCE));
            let count = || arena.one.blocking_status("k").unwrap().waiters.len();
            eventually(PATIENCE, "all wait", || count() == 3);
            let begun = Instant::now();
            guard.blocking_complete().unwrap();
            waiting.into_iter().for_each(|thread| assert!(thread.join().unwrap()));
            let took = begun.elapsed();
            assert!(arena.one.blocking_force_release("k", "done with it").unwrap());
            busy.must_have_it();
            busy.finish();
            turns.must_be_below(ms(600), took);
        }
        arena.assert_clean();
    }
}

#[test]
fn a_period_ends_and_one_that_is_over_gives_the_lock_back() {
    for arena in arenas() {
        let short = |locks: &Locks| locks.mutex("k").once(ms(3_000));
        let begun = Instant::now();
        take(short(&arena.one)).blocking_complete().unwrap();
        assert!(is_done(short(&arena.other)));
        let request = arena.other.mutex("k").wait(PATIENCE);
        take(request).blocking_release().unwrap();
        assert!(begun.elapsed() > ms(2_950), "{}: {:?}", arena.name, begun.elapsed());
        let guard = take(arena.one.mutex("k").once(ms(100)));
        let taken = Instant::now();
        eventually(PATIENCE, "the period is over", || taken.elapsed() > ms(150));
        guard.blocking_complete().unwrap();
        assert!(is_free(short(&arena.other)), "{}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn success_is_the_ok_of_a_body_that_may_fail() {
    type Outcome = Result<u32, LockError>;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in arenas() {
        for is_blocking in [true, false] {
            let run = |outcome: Outcome| {
                let request = once(&arena.one);
                match is_blocking {
                    true => request.blocking_try_run(|_| outcome),
                    false => runtime.block_on(request.try_run(async |_| outcome)),
                }
            };
            assert_eq!(run(Err(LockError::NotConfigured)), Err(LockError::NotConfigured));
            assert_eq!(run(Ok(7)), Ok(7), "{}", arena.name);
            assert!(matches!(run(Ok(7)), Err(LockError::Done { .. })));
            assert!(arena.one.blocking_force_release("k", "again").unwrap());
            // Useful without it as well.
            let request = arena.one.mutex("k");
            assert_eq!(request.blocking_try_run(|_| Outcome::Ok(8)), Ok(8));
        }
        arena.assert_clean();
    }
}

#[test]
fn a_call_that_is_dropped_after_the_success_of_its_body_has_succeeded() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in arenas() {
        let body = async |_: &_| Ok::<_, LockError>(());
        runtime.block_on(async {
            let mut call = Box::pin(once(&arena.one).try_run(body));
            // Dropped at its first pause after the acquisition, which is that for the confirmation.
            let held = async {
                while arena.one.status("k").await.unwrap().kind == LockKind::Free {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                _ = &mut call => {}
                () = held => {}
            }
            drop(call);
        });
        let known = || arena.other.blocking_status("k").unwrap().done.is_some();
        // A call that was dropped earlier, before the body was polled, has done nothing.
        eventually(PATIENCE, "it is known or free", || known() || is_free(arena.other.mutex("k")));
        let _ = arena.other.blocking_force_release("k", "the end");
        arena.assert_clean();
    }
}

#[test]
fn two_who_adopt_one_token_succeed_once() {
    for arena in arenas() {
        let token = take(once(&arena.one)).detach();
        let adopt = |locks: &Locks| once(locks).blocking_adopt(token.clone()).unwrap();
        let (first, second) = (adopt(&arena.one), adopt(&arena.other));
        first.blocking_complete().unwrap();
        let lost = second.blocking_complete().unwrap_err();
        assert!(lost.is_lost(), "{}: {lost}", arena.name);
        assert!(is_done(once(&arena.other)), "the second has not undone it");
        let third = once(&arena.other).blocking_adopt(token.clone()).unwrap_err();
        assert!(third.is_lost(), "{third}");
        assert!(is_done(once(&arena.other)), "nor has the third");
        assert!(arena.one.blocking_force_release("k", "the end").unwrap());
        arena.assert_clean();
    }
}

#[test]
fn status_says_until_when_min_hold_keeps_a_lock() {
    for arena in arenas() {
        let label = "quick job";
        let begun = SystemTime::now();
        let guard = take(arena.one.mutex("k").min_hold(HOUR).label(label));
        let token = guard.token().clone();
        guard.blocking_release().unwrap();
        let status = arena.other.blocking_status("k").unwrap();
        let until = status.kept_until.unwrap();
        assert!(until.duration_since(begun).is_ok_and(|kept| kept > HOUR - PATIENCE));
        assert!(status.is_held() && status.done.is_none(), "{status:?}");
        let [holder] = status.holders.as_slice() else { panic!("{status:?}") };
        assert_eq!((&holder.token, holder.kept_until), (&token, Some(until)));
        let busy = arena.other.mutex("k").no_wait().blocking_acquire().unwrap_err().to_string();
        assert!(busy.contains(", kept until 20") && busy.contains(" by min_hold of "), "{busy}");
        assert!(busy.contains(label), "{busy}");
        assert!(matches!(once(&arena.other).blocking_try_acquire(), Ok(None)), "it is not done");
        assert!(arena.other.blocking_force_release("k", "needed now").unwrap());
        assert!(is_free(arena.other.mutex("k")), "{}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn what_once_does_not_go_with_is_refused() {
    let locks = Locks::builder().in_memory().linger(ms(900)).open().unwrap();
    let wrong = [
        once(&locks).never_expires(),
        once(&locks).reentrant(),
        once(&locks).linger(ms(100)),
        once(&locks).min_hold(HOUR * 2),
        locks.mutex("k").once(Duration::ZERO),
        locks.read("k").once(HOUR),
        locks.permit("k", 2).once(HOUR),
        locks.all(["j", "k"]).once(HOUR),
    ];
    let too_long = locks.mutex("k").once(HOUR * 24 * 365 * 600).blocking_acquire().unwrap_err();
    assert!(too_long.to_string().contains("100 years"), "{too_long}");
    let outer = take(locks.mutex("k").linger(Duration::ZERO));
    let joined = once(&locks).reentrant().blocking_acquire().unwrap_err();
    assert!(matches!(joined, LockError::InvalidConfig { .. }), "{joined}");
    outer.blocking_release().unwrap();
    for request in wrong {
        let error = request.blocking_acquire().unwrap_err();
        let is_it =
            matches!(error, LockError::InvalidConfig { cause: ConfigError::Conflict { .. }, .. });
        assert!(is_it && error.to_string().contains("once"), "{error}");
    }
    let refused = once(&locks).blocking_run(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("try_run"), "{refused}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for refused in [
        runtime.block_on(once(&locks).run(async |_| ())),
        runtime.block_on(once(&locks).lead(async |_| ())),
    ] {
        assert!(refused.unwrap_err().to_string().contains("try_run"));
    }
    let guard = take(locks.mutex("k").linger(Duration::ZERO));
    let error = guard.blocking_complete().unwrap_err();
    let LockError::InvalidConfig { cause, .. } = error else { panic!("{error:?}") };
    assert!(matches!(cause, ConfigError::Requires { needs: "`once`", .. }), "{cause:?}");
    assert!(is_free(locks.mutex("k")));
    // The builder's linger does not apply, and a min_hold within the period is fine.
    take(once(&locks).min_hold(ms(1))).blocking_complete().unwrap();
    assert!(is_done(once(&locks)));
}
