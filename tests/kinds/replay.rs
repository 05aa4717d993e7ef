//! `replay`: a later call gets the value of the call that did it.

use std::time::Duration;

use redis_locks::{
    ConfigError, Guard, LockError, LockRequest, Locks, NoValue, Origin, Reply, redis,
};
use serde::{Deserialize, Serialize};
use testbed::{Server, eventually};

use crate::arena::{Arena, PATIENCE, Waiting, is_free, ms, queued, take};

const HOUR: Duration = Duration::from_secs(3_600);

/// Where the value of the lock `k` stands.
const VALUE: &str = "lock:{lock:k}:~v";

#[derive(PartialEq, Debug, Clone, Serialize, Deserialize)]
struct Receipt {
    number: u64,
    text: String,
}

fn receipt(number: u64) -> Receipt {
    Receipt { number, text: "a \"quoted\" ü\nline".into() }
}

fn replay(locks: &Locks) -> LockRequest {
    locks.mutex("k").once(HOUR).replay()
}

fn arenas() -> Vec<Arena> {
    let mut arenas = Arena::each();
    arenas.push(Arena::without_scripts());
    arenas.extend(Arena::clusters());
    arenas
}

fn call(request: LockRequest, value: Receipt) -> Result<Reply<Receipt>, LockError> {
    request.blocking_call(|_| Ok(value))
}

/// The call gets `Done`, for this reason.
#[track_caller]
fn has_no_value<T: std::fmt::Debug>(got: Result<Reply<T>, LockError>, why: NoValue) {
    let Err(error @ LockError::Done { .. }) = &got else { panic!("{got:?}") };
    let LockError::Done { no_value, .. } = error else { unreachable!() };
    assert_eq!(*no_value, Some(why));
    assert!(error.to_string().contains(&why.to_string()), "{error}");
}

#[test]
fn a_later_call_gets_the_value_in_every_process() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in arenas() {
        let name = arena.name;
        let first = call(replay(&arena.one), receipt(1)).unwrap();
        assert_eq!((first.origin(), first.value()), (Origin::Body, &receipt(1)), "{name}");
        for locks in [&arena.one, &arena.other, &arena.third()] {
            let again = call(replay(locks).no_wait(), receipt(2)).unwrap();
            assert_eq!((again.origin(), again.number), (Origin::Replayed, 1), "{name}");
            let never = async |_: &Guard| -> Result<Receipt, LockError> { panic!("it was done") };
            let again = runtime.block_on(replay(locks).call(never)).unwrap();
            assert_eq!((again.origin(), again.into_value()), (Origin::Replayed, receipt(1)));
        }
        // Whoever asks for no value gets none.
        let done = arena.other.mutex("k").once(HOUR).blocking_acquire().unwrap_err();
        let LockError::Done { no_value: None, token, .. } = &done else { panic!("{done:?}") };
        let shown = arena.other.blocking_status("k").unwrap().done.unwrap();
        let value = shown.value.as_ref().unwrap();
        assert_eq!(serde_json::from_str::<Receipt>(value.json()).unwrap(), receipt(1));
        assert!(!format!("{shown:?}").contains("quoted"), "{shown:?}");
        if let Some(server) = &arena.server {
            let json = serde_json::to_string(&receipt(1)).unwrap();
            assert_eq!(server.run::<String>(&format!("GET {VALUE}")), format!("{token} {json}"));
            let left = |key: &str| server.pttl(key).unwrap();
            assert!(left(VALUE).abs_diff(left("lock:k")) < 50, "it ends with the mark");
        }
        assert!(arena.other.blocking_force_release("k", "again").unwrap());
        assert_eq!(call(replay(&arena.other), receipt(3)).unwrap().origin(), Origin::Body);
        assert_eq!(call(replay(&arena.one), receipt(4)).unwrap().number, 3, "{name}");
        assert!(arena.other.blocking_force_release("k", "over").unwrap());
        arena.assert_clean();
    }
}

#[test]
fn waiting_calls_get_the_value_and_after_a_failure_the_next_one_runs() {
    for arena in arenas() {
        let fails = take(replay(&arena.one));
        let wait = |locks: &Locks, number| {
            let request = replay(locks);
            std::thread::spawn(move || call(request, receipt(number)).unwrap())
        };
        let waiting = [wait(&arena.one, 7), wait(&arena.other, 8), wait(&arena.third(), 9)];
        let count = || arena.one.blocking_status("k").unwrap().waiters.len();
        eventually(PATIENCE, "all wait", || count() == 3);
        fails.blocking_release().unwrap();
        let got: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        let ran = got.iter().filter(|reply| reply.origin() == Origin::Body).count();
        assert_eq!(ran, 1, "{}: {got:?}", arena.name);
        assert!(got.iter().all(|reply| reply.value() == got[0].value()), "{}", arena.name);
        assert!(arena.one.blocking_force_release("k", "over").unwrap());
        arena.assert_clean();
    }
}

#[test]
fn an_error_is_never_stored() {
    for arena in arenas() {
        let failed =
            replay(&arena.one).blocking_call(|_| Err::<Receipt, _>(LockError::NotConfigured));
        assert_eq!(failed.unwrap_err(), LockError::NotConfigured);
        if let Some(server) = &arena.server {
            assert_eq!(server.run::<i64>(&format!("EXISTS {VALUE} lock:k")), 0, "{}", arena.name);
        }
        assert_eq!(call(replay(&arena.other), receipt(1)).unwrap().origin(), Origin::Body);
    }
}

#[test]
fn a_body_longer_than_the_period_leaves_neither_mark_nor_value() {
    for arena in arenas() {
        let request = arena.one.mutex("k").once(ms(100)).replay();
        let reply = request.blocking_call(|_| {
            let begun = std::time::Instant::now();
            eventually(PATIENCE, "the period is over", || begun.elapsed() > ms(150));
            Ok::<_, LockError>(1)
        });
        assert_eq!(reply.unwrap().origin(), Origin::Body);
        assert!(is_free(replay(&arena.other)), "{}", arena.name);
        if let Some(server) = &arena.server {
            assert_eq!(server.run::<i64>(&format!("EXISTS {VALUE}")), 0);
        }
        arena.assert_clean();
    }
}

#[test]
fn a_guard_completes_with_a_value() {
    for arena in arenas() {
        take(replay(&arena.one)).blocking_complete_with(&receipt(5)).unwrap();
        assert_eq!(call(replay(&arena.other), receipt(6)).unwrap().number, 5, "{}", arena.name);
        let wrong = take(arena.one.mutex("other")).blocking_complete_with(&1).unwrap_err();
        assert!(matches!(
            wrong,
            LockError::InvalidConfig { cause: ConfigError::Requires { .. }, .. }
        ));
        assert!(arena.one.blocking_force_release("k", "over").unwrap());
        arena.assert_clean();
    }
}

/// Can't be written as JSON.
#[derive(Debug, Clone, Deserialize)]
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("it is the user's")
    }
}

#[test]
fn a_value_that_cannot_be_stored_or_read_is_no_value() {
    for arena in arenas() {
        let again = || assert!(arena.one.blocking_force_release("k", "again").unwrap());
        let text = |len: usize| "x".repeat(len);
        // With its quotes it is as large as may be.
        for (len, is_stored) in [((64 << 10) - 2, true), ((64 << 10) - 1, false)] {
            let own = replay(&arena.one).blocking_call(|_| Ok::<_, LockError>(text(len))).unwrap();
            assert_eq!((own.origin(), own.len()), (Origin::Body, len));
            let other = replay(&arena.other).blocking_call(|_| Ok::<_, LockError>(text(0)));
            match is_stored {
                true => assert_eq!(other.unwrap().len(), len, "{}", arena.name),
                false => {
                    let Err(LockError::Done { no_value, .. }) = other else { panic!("{other:?}") };
                    let too_large = format!("{:?}", no_value.unwrap());
                    assert!(too_large.starts_with("TooLarge"), "{too_large}");
                }
            }
            again();
        }
        let own = replay(&arena.one).blocking_call(|_| Ok::<_, LockError>(Unwritable));
        assert_eq!(own.unwrap().origin(), Origin::Body, "its own success comes back");
        let other = replay(&arena.other).blocking_call(|_| Ok::<_, LockError>(Unwritable));
        has_no_value(other, NoValue::NotSerialized);
        again();
        call(replay(&arena.one), receipt(1)).unwrap();
        let other = replay(&arena.other).blocking_call(|_| Ok::<_, LockError>(7));
        has_no_value(other, NoValue::OtherType);
        again();
        take(arena.one.mutex("k").once(HOUR)).blocking_complete().unwrap();
        has_no_value(call(replay(&arena.other), receipt(1)), NoValue::Missing);
        again();
        arena.assert_clean();
    }
}

#[test]
fn what_another_program_has_written_there_is_left_alone() {
    for arena in arenas() {
        let Some(server) = &arena.server else { continue };
        for (write, read) in [("SET", "GET"), ("SADD", "SMEMBERS")] {
            server.run::<redis::Value>(&format!("{write} {VALUE} theirs"));
            call(replay(&arena.one), receipt(1)).unwrap();
            has_no_value(call(replay(&arena.other), receipt(2)), NoValue::Foreign);
            let stands = server.run::<redis::Value>(&format!("{read} {VALUE}"));
            assert!(
                format!("{stands:?}").contains("116, 104, 101, 105, 114, 115")
                    || format!("{stands:?}").contains("theirs"),
                "{stands:?}"
            );
            assert!(arena.one.blocking_force_release("k", "again").unwrap());
            server.run::<i64>(&format!("DEL {VALUE}"));
        }
        // A value that the server has evicted.
        call(replay(&arena.one), receipt(1)).unwrap();
        server.run::<i64>(&format!("DEL {VALUE}"));
        has_no_value(call(replay(&arena.other), receipt(2)), NoValue::Missing);
        // A value of an earlier run, under the mark of a version that stores none.
        let older = "rl1.00000000000000000000000000000001.m.0. 7";
        server.query::<String>(redis::cmd("SET").arg(VALUE).arg(older)).unwrap();
        has_no_value(call(replay(&arena.other), receipt(2)), NoValue::Missing);
        server.run::<i64>(&format!("DEL {VALUE} lock:k"));
        arena.assert_clean();
    }
}

#[test]
fn values_are_never_shown() {
    let locks = Locks::in_memory();
    let reply = replay(&locks).blocking_call(|_| Ok::<_, LockError>("secret".to_owned())).unwrap();
    let wrong = replay(&locks).blocking_call(|_| Ok::<_, LockError>(1)).unwrap_err();
    let status = locks.blocking_status("k").unwrap();
    for shown in [format!("{reply:?}"), format!("{wrong:?} {wrong}"), format!("{status:?}")] {
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_by_name() {
    let locks = Locks::in_memory();
    let refused = |request: LockRequest| {
        request.blocking_call(|_| Ok::<_, LockError>(1)).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(locks.mutex("k").replay()).contains("`once`"));
    assert!(refused(locks.mutex("k").once(HOUR)).contains("replay"));
    assert!(refused(locks.mutex("k")).contains("try_run"));
    let wrong = Locks::builder().in_memory().largest_value((1 << 20) + 1).open().unwrap_err();
    assert!(wrong.to_string().contains("1 MiB"), "{wrong}");
    let large = Locks::builder().in_memory().largest_value(1 << 20).open().unwrap();
    let value = "x".repeat((1 << 20) - 2);
    replay(&large).blocking_call(|_| Ok::<_, LockError>(value.clone())).unwrap();
    let again = replay(&large).blocking_call(|_| Ok::<_, LockError>(String::new())).unwrap();
    assert_eq!(*again, value);
}

#[test]
fn a_full_server_keeps_the_value_with_scripts_and_the_mark_without_value_else() {
    for without_scripts in [false, true] {
        let arena = if without_scripts { Arena::without_scripts() } else { Arena::server() };
        let server: &Server = arena.server.as_ref().unwrap();
        let guard = take(replay(&arena.one).ttl(ms(2_000)));
        let waiting = Waiting::start(arena.other.mutex("other"));
        waiting.must_have_it();
        waiting.finish();
        assert_eq!(queued(&arena, "k"), 0);
        server.run::<String>("CONFIG SET maxmemory 1");
        let completed = guard.blocking_complete_with(&receipt(1));
        server.run::<String>("CONFIG SET maxmemory 0");
        match without_scripts {
            false => {
                completed.unwrap();
                assert_eq!(call(replay(&arena.other), receipt(2)).unwrap().number, 1);
            }
            // A whole transaction is refused, so the call that completes is told.
            true => {
                let later = call(replay(&arena.other), receipt(2));
                match completed {
                    Ok(()) => has_no_value(later, NoValue::Missing),
                    Err(error) => assert!(error.is_retryable() || error.is_lost(), "{error}"),
                }
            }
        }
    }
}
