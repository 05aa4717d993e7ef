//! Locks that count when replicas have them.

#[cfg(feature = "serde")]
use std::sync::Arc;
#[cfg(feature = "serde")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, LocksBuilder, NotReplicated};
use testbed::{Sentinel, Server, ServerBinary, Turns, eventually, holds_for};

use crate::arena::{PATIENCE, ms, take};
use crate::is_held;

/// A server, and one that has a copy of it.
struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    /// None where every server is to be a node of a cluster, which has its replicas by other ways.
    fn start(binary: ServerBinary) -> Option<Self> {
        if std::env::var_os("TESTBED_CLUSTER").is_some() {
            testbed::report_skipped("whose replica a node of a cluster is, the cluster decides");
            return None;
        }
        let primary = Server::builder().binary(binary.clone()).start();
        let replica = Server::builder().binary(binary).start();
        replica.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        let linked = || replica.info("replication", "master_link_status").as_deref() == Some("up");
        eventually(PATIENCE, "the replica is linked", linked);
        Some(Self { primary, replica })
    }

    fn locks(&self, replicas: u32) -> LocksBuilder {
        Locks::builder().url(self.primary.url()).replicas(replicas).outage(ms(1_500))
    }
}

fn pairs() -> Vec<Pair> {
    let binaries = [Some(ServerBinary::any()), ServerBinary::valkey(9)];
    binaries.into_iter().flatten().filter_map(Pair::start).collect()
}

fn shortfall(error: &LockError) -> NotReplicated {
    let LockError::Backend { source, .. } = error else { panic!("{error:?}") };
    assert!(source.is_retryable(), "{error}");
    source.not_replicated().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn f5_f14_without_its_replica_nothing_is_acquired_and_others_are_not_delayed() {
    for pair in pairs() {
        let (locks, others) = (pair.locks(1).open().unwrap(), pair.locks(0).open().unwrap());
        let guard = take(locks.mutex("job"));
        assert!(pair.replica.exists("lock:job"), "the replica had it before the guard was there");
        guard.blocking_release().unwrap();
        pair.replica.freeze();
        let late = std::thread::spawn(move || {
            (locks.mutex("job").blocking_acquire().map(drop).unwrap_err(), locks)
        });
        while !late.is_finished() {
            let mut turns = Turns::of("locks that want no replica are not delayed");
            while turns.go_on() {
                let start = Instant::now();
                take(others.mutex("other")).blocking_release().unwrap();
                turns.must_be_below(ms(1_200), start.elapsed());
            }
        }
        let (error, locks) = late.join().unwrap();
        let NotReplicated { got, wanted, .. } = shortfall(&error);
        assert_eq!((got, wanted), (0, 1), "{error}");
        assert!(error.to_string().contains("0 of the 1 required replicas"), "{error}");
        eventually(PATIENCE, "what was acquired is released", || !pair.primary.exists("lock:job"));
        pair.replica.thaw();
        eventually(PATIENCE, "it works again", || locks.mutex("job").blocking_acquire().is_ok());
        eventually(PATIENCE, "it is released", || !pair.primary.exists("lock:job"));
        pair.primary.assert_clean();
    }
}

#[test]
fn f14_what_was_done_counts_when_the_replica_has_the_mark() {
    for pair in pairs() {
        let locks = pair.locks(1).open().unwrap();
        let nightly = || locks.mutex("job").once(Duration::from_secs(60));
        let guard = take(nightly());
        pair.replica.freeze();
        let error = guard.blocking_complete().unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        // The primary has the mark, so the complete that is repeated finds its own.
        eventually(PATIENCE, "it is marked", || {
            nightly().blocking_acquire().is_err_and(|it| matches!(it, LockError::Done { .. }))
        });
        pair.replica.thaw();
        let has_mark = || pair.replica.exists("lock:job");
        eventually(PATIENCE, "the replica has it", has_mark);

        let guard = take(locks.mutex("other").once(Duration::from_secs(60)));
        guard.blocking_complete().expect("with its replica it counts");
    }
}

#[cfg(feature = "serde")]
#[test]
fn f14_after_a_fail_over_what_was_done_has_its_value() {
    for pair in pairs() {
        let (done, locks) = (Arc::new(AtomicUsize::new(0)), pair.locks(1).open().unwrap());
        let request = |locks: &Locks, number: usize| {
            locks.mutex(format!("job:{number}")).once(Duration::from_secs(600)).replay()
        };
        let working = std::thread::spawn({
            let done = Arc::clone(&done);
            move || {
                for number in 0.. {
                    if request(&locks, number)
                        .blocking_call(|_| Ok::<_, LockError>(number))
                        .is_err()
                    {
                        break;
                    }
                    done.store(number + 1, Ordering::SeqCst);
                }
            }
        });
        eventually(PATIENCE, "it is at work", || done.load(Ordering::SeqCst) >= 30);
        pair.primary.kill9();
        working.join().unwrap();
        pair.replica.run::<()>("REPLICAOF NO ONE");
        let (heir, done) = (Locks::open(pair.replica.url()).unwrap(), done.load(Ordering::SeqCst));
        for number in 0..=done {
            let known = heir.blocking_status(format!("job:{number}")).unwrap().done;
            if let Some(known) = &known {
                let value = known.value.as_ref().expect("a mark has its value");
                assert_eq!(value.json(), number.to_string());
            }
            // The last success comes back although its mark may not have come to the server.
            if number + 1 < done {
                let again = request(&heir, number).blocking_call(|_| -> Result<usize, LockError> {
                    panic!("job {number} runs again")
                });
                let again = again.unwrap();
                assert_eq!((again.origin(), *again), (redis_locks::Origin::Replayed, number));
            }
        }
    }
}

/// How often the server has carried out this command.
fn calls(server: &Server, command: &str) -> u32 {
    let text = server.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
    let calls = text.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn f14_a_free_lock_is_waited_for_while_it_is_taken_and_not_after_that() {
    const TIMES: u32 = 50;
    for pair in pairs() {
        let spent = |replicas| {
            let locks = pair.locks(replicas).open().unwrap();
            take(locks.mutex("job")).blocking_release().unwrap();
            let before = ["get", "wait"].map(|command| calls(&pair.primary, command));
            for _ in 0..TIMES {
                take(locks.mutex("job")).blocking_release().unwrap();
            }
            let after = ["get", "wait"].map(|command| calls(&pair.primary, command));
            [after[0] - before[0], after[1] - before[1]]
        };
        // Releases read as well where they are scripts.
        let [released, _] = spent(0);
        let [reads, waits] = spent(1);
        assert_eq!(reads - released, TIMES, "each round looks for the lock that is being taken");
        // A round that looks too early is followed by a second one.
        assert!(waits < TIMES * 3 / 2, "{waits} rounds for {TIMES} locks");
    }
}

#[test]
fn f14_a_renewal_counts_when_the_replica_has_it() {
    for pair in pairs() {
        let locks = pair.locks(1).ttl(ms(1_500)).open().unwrap();
        let guard = take(locks.mutex("job"));
        holds_for(ms(2_000), "it is renewed beyond its first lease", || is_held(&guard));
        pair.replica.freeze();
        eventually(ms(4_000), "it is lost, though the primary would renew it", || !is_held(&guard));
        pair.replica.thaw();
    }
}

#[test]
fn f14_as_many_replicas_are_counted_as_there_are() {
    for pair in pairs() {
        let locks = pair.locks(2).open().unwrap();
        let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err();
        let NotReplicated { got, wanted, .. } = shortfall(&error);
        assert_eq!((got, wanted), (1, 2), "{error}");
        eventually(PATIENCE, "what was acquired is released", || !pair.primary.exists("lock:job"));
    }
}

#[test]
fn f15_only_what_was_written_before_counts_after_a_reconnect() {
    for pair in pairs() {
        let locks = pair.locks(1).open().unwrap();
        take(locks.mutex("job")).blocking_release().unwrap();
        for _ in 0..3 {
            // Both connections are made anew, and the next write comes behind everything that was
            // answered before.
            pair.primary.run::<()>("CLIENT KILL TYPE normal SKIPME yes");
            let guard = take(locks.mutex("job"));
            assert!(pair.replica.exists("lock:job"));
            guard.blocking_release().unwrap();
        }
        pair.replica.freeze();
        pair.primary.run::<()>("CLIENT KILL TYPE normal SKIPME yes");
        let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err();
        assert_eq!(shortfall(&error).got, 0, "{error}");
        pair.replica.thaw();
    }
}

#[test]
fn f14_a_primary_that_is_deposed_while_it_waits_for_its_replica_counts_nobody() {
    for pair in pairs() {
        let locks = pair.locks(1).command_timeout(ms(2_000)).open().unwrap();
        take(locks.mutex("job")).blocking_release().unwrap();
        pair.replica.freeze();
        let asked = std::thread::spawn(move || {
            let outcome = locks.mutex("job").wait(PATIENCE).blocking_acquire();
            (outcome.map(drop).unwrap_err(), locks)
        });
        eventually(PATIENCE, "it waits for its replica", || {
            pair.primary.run::<String>("CLIENT LIST").contains("cmd=wait")
        });
        // The `WAIT` that is still open is answered by `UNBLOCKED` or 0.
        pair.primary.run::<()>("REPLICAOF 127.0.0.1 1");
        let (error, locks) = asked.join().unwrap();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        pair.primary.run::<()>("REPLICAOF NO ONE");
        pair.replica.thaw();
        let works = || locks.mutex("job").wait(PATIENCE).blocking_acquire().is_ok();
        eventually(PATIENCE, "it works again", works);
        drop(locks);
        pair.primary.assert_clean();
    }
}

#[test]
fn f14_under_sentinel_what_the_replica_has_survives_a_fail_over_and_is_counted_at_the_successor() {
    let group = Sentinel::start();
    let locks = Locks::builder()
        .sentinel(group.urls(), group.name())
        .replicas(1)
        .ttl(ms(60_000))
        .outage(ms(1_500))
        .open()
        .unwrap();
    let guard = take(locks.mutex("job"));
    assert!(group.replica().server().exists("lock:job"), "it had it before the guard was there");
    group.replica().server().freeze();
    let error = locks.mutex("other").blocking_acquire().map(drop).unwrap_err();
    assert_eq!(shortfall(&error).got, 0, "{error}");
    for node in group.servers() {
        node.server().thaw();
    }
    group.until_ok();
    let successor = group.fail_over();
    // Its replica is the primary that it has replaced.
    let mut other = None;
    eventually(PATIENCE, "locks are acquired at the successor, and counted", || {
        other = locks.mutex("other").wait(PATIENCE).blocking_acquire().ok();
        other.is_some()
    });
    assert!(successor.server().exists("lock:other"));
    assert!(group.replica().server().exists("lock:other"));
    assert!(is_held(&guard));
    other.unwrap().blocking_release().unwrap();
    guard.blocking_release().unwrap();
    successor.server().assert_clean();
}

#[test]
fn replicas_are_waited_for_where_scripts_are_denied() {
    for pair in pairs() {
        pair.primary.run::<()>("ACL SETUSER default -eval -evalsha");
        let locks = pair.locks(1).open().unwrap();
        let guard = take(locks.mutex("job"));
        assert!(pair.replica.exists("lock:job"), "the replica had it before the guard was there");
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        for _ in 0..20 {
            // Releases that come one at a time have a connection of their own.
            let guard = take(locks.mutex("job"));
            assert!(
                pair.replica.exists("lock:job"),
                "the replica had it before the guard was there"
            );
            guard.blocking_release().unwrap();
        }
        pair.replica.freeze();
        let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err();
        assert_eq!(shortfall(&error).got, 0, "{error}");
        eventually(PATIENCE, "what was acquired is released", || !pair.primary.exists("lock:job"));
        pair.replica.thaw();
        eventually(PATIENCE, "it works again", || {
            locks
                .mutex("job")
                .blocking_acquire()
                .is_ok_and(|guard| guard.blocking_release().is_ok())
        });
        drop(locks);
        pair.primary.run::<()>("ACL SETUSER default +eval +evalsha");
        pair.primary.assert_clean();
    }
}

#[test]
fn a_full_server_with_a_replica_renews_and_releases_what_is_held() {
    for pair in pairs() {
        let locks = pair.locks(1).ttl(ms(800)).open().unwrap();
        let guard = take(locks.mutex("job"));
        pair.primary.run::<()>("CONFIG SET maxmemory 1");
        holds_for(ms(2_500), "it is renewed", || is_held(&guard));
        let refused = locks.mutex("other").blocking_acquire().map(drop).unwrap_err();
        assert!(refused.to_string().contains("OOM"), "{refused}");
        guard.blocking_release().unwrap();
        assert!(!pair.primary.exists("lock:job"));
        pair.primary.assert_clean();
    }
}
