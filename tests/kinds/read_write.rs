//! Locks for reading and writing.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use redis_locks::{BackendErrorKind, LockError, LockRequest, LockState, Locks};
use testbed::{ClockShim, Server, eventually, must_be_prompt};

use crate::arena::{
    Arena, NOTIFIED, PATIENCE, Waiting, cancel_everywhere, crash, finish_all, is_free, ms, queued,
    refused, take,
};

#[test]
fn readers_share_and_a_writer_is_alone() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        let first = take(one.read("k"));
        let second = take(other.read("k"));
        assert!(!is_free(one.write("k")), "{}", arena.name);
        first.blocking_release().unwrap();
        assert!(!is_free(one.write("k")), "{}", arena.name);
        second.blocking_release().unwrap();
        let writer = take(one.write("k"));
        assert!(!is_free(other.read("k")) && !is_free(other.write("k")), "{}", arena.name);
        writer.blocking_release().unwrap();
        assert!(is_free(other.read("k")));
        arena.assert_clean();
    }
}

#[test]
fn l1_a_reader_that_dies_frees_itself_and_nobody_else() {
    for arena in Arena::each() {
        let long = take(arena.one.read("k").ttl(ms(30_000)));
        let short = take(arena.other.read("k").ttl(ms(5_000)));
        crash(take(arena.third().read("k").ttl(ms(300)).renew(false)));
        let writer = Waiting::start(arena.other.write("k"));
        short.blocking_release().unwrap();
        writer.must_wait();
        if let Some(server) = &arena.server {
            eventually(PATIENCE, "the dead reader's lease has ended", || {
                let now: Vec<u64> = server.run("TIME");
                let from = format!("({}", now[0] * 1000 + now[1] / 1000);
                server.run::<usize>(&format!("ZCOUNT lock:k {from} +inf")) == 1
            });
            assert!(server.pttl("lock:k") > Some(5_000), "the longest lease counts");
        }
        long.blocking_verify().unwrap();
        long.blocking_release().unwrap();
        writer.must_have_it();
        writer.finish();
        arena.assert_clean();
    }
}

#[test]
fn l1_a_writer_gets_the_lock_of_a_dead_reader_when_its_lease_has_ended() {
    for arena in Arena::each() {
        let start = Instant::now();
        crash(take(arena.one.read("k").ttl(ms(600)).renew(false)));
        take(arena.other.write("k").wait(PATIENCE)).blocking_release().unwrap();
        let waited = start.elapsed();
        assert!(waited > ms(580) && waited < PATIENCE / 2, "{}: {waited:?}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn c13_a_renewal_never_shortens_what_others_need() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let _long = take(arena.one.read("k").ttl(ms(20_000)));
    let short = take(arena.other.read("k").ttl(ms(1_000)));
    let renewed = server.command_counts().get("zadd").copied().unwrap_or(0) + 3;
    eventually(PATIENCE, "the short lease is renewed some times", || {
        assert!(server.pttl("lock:k") > Some(15_000));
        server.command_counts().get("zadd").copied().unwrap_or(0) > renewed
    });
    short.blocking_verify().unwrap();
}

#[test]
fn l3_readers_that_wait_for_a_writer_are_let_in_together() {
    for arena in Arena::each() {
        let writer = take(arena.one.write("k"));
        let readers: Vec<_> = (0..10)
            .map(|number| {
                let locks = if number % 2 == 0 { &arena.one } else { &arena.other };
                Waiting::start(locks.read("k"))
            })
            .collect();
        eventually(PATIENCE, "all wait", || queued(&arena, "k") == 10);
        let last = Waiting::start(arena.one.write("k"));
        eventually(PATIENCE, "a writer waits behind them", || queued(&arena, "k") == 11);
        let late = Waiting::start(arena.one.read("k"));
        writer.blocking_release().unwrap();
        // None of them leaves before all are in.
        readers.iter().for_each(Waiting::must_have_it);
        last.must_wait();
        late.must_wait();
        readers.into_iter().for_each(Waiting::finish);
        last.must_have_it();
        late.must_wait();
        last.finish();
        late.must_have_it();
        late.finish();
        arena.assert_clean();
    }
}

#[test]
fn l3_neither_writers_nor_readers_starve() {
    for arena in Arena::each() {
        let stop = AtomicBool::new(false);
        let turns: [AtomicUsize; 6] = Default::default();
        let take_turns = |make: fn(&Locks) -> LockRequest, locks: &Locks, turns: &AtomicUsize| {
            while !stop.load(Ordering::Relaxed) {
                let guard = take(make(locks).wait(PATIENCE));
                thread::sleep(ms(5));
                guard.blocking_release().unwrap();
                turns.fetch_add(1, Ordering::Relaxed);
            }
        };
        let read: fn(&Locks) -> LockRequest = |locks| locks.read("k");
        let write: fn(&Locks) -> LockRequest = |locks| locks.write("k");
        thread::scope(|scope| {
            // Readers overlap all the time, and so do requests for writing.
            for (at, make) in [read, read, read, read, write, write].into_iter().enumerate() {
                let locks = if at % 2 == 0 { &arena.one } else { &arena.other };
                let (take_turns, turns) = (&take_turns, &turns[at]);
                scope.spawn(move || take_turns(make, locks, turns));
            }
            let each_had = |most| turns.iter().all(|turns| turns.load(Ordering::Relaxed) > most);
            eventually(PATIENCE, &format!("{}: each has many turns", arena.name), || each_had(40));
            stop.store(true, Ordering::Relaxed);
        });
        arena.assert_clean();
    }
}

#[test]
fn l2_exclusion_holds_among_many() {
    for arena in Arena::each() {
        let (readers, writers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for number in 0..8 {
                let (arena, barrier) = (&arena, &barrier);
                let (readers, writers) = (&readers, &writers);
                scope.spawn(move || {
                    let locks = if number % 2 == 0 { &arena.one } else { &arena.other };
                    barrier.wait();
                    for turn in 0..30 {
                        if (number + turn) % 4 == 0 {
                            let guard = take(locks.write("k").wait(PATIENCE));
                            assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                            assert_eq!(readers.load(Ordering::SeqCst), 0);
                            writers.fetch_sub(1, Ordering::SeqCst);
                            guard.blocking_release().unwrap();
                        } else {
                            let guard = take(locks.read("k").wait(PATIENCE));
                            readers.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(writers.load(Ordering::SeqCst), 0);
                            readers.fetch_sub(1, Ordering::SeqCst);
                            guard.blocking_release().unwrap();
                        }
                    }
                });
            }
        });
        arena.assert_clean();
    }
}

#[test]
fn a_waiting_writer_is_let_in_by_the_last_reader_at_once() {
    for arena in Arena::each() {
        must_be_prompt(NOTIFIED, arena.name, || {
            let first = take(arena.one.read("k"));
            let second = take(arena.other.read("k"));
            let writer = Waiting::start(arena.other.write("k"));
            eventually(PATIENCE, "it waits", || queued(&arena, "k") == 1);
            first.blocking_release().unwrap();
            writer.must_wait();
            let released = Instant::now();
            second.blocking_release().unwrap();
            writer.must_have_it();
            let took = released.elapsed();
            writer.finish();
            took
        });
        arena.assert_clean();
    }
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    for arena in Arena::each() {
        must_be_prompt(NOTIFIED, arena.name, || {
            let reader = take(arena.one.read("k"));
            let writer = thread::spawn({
                // Long enough that it still waits when the reader behind it was watched.
                let request = arena.other.write("k").wait(ms(1_200));
                move || request.blocking_acquire().map(drop).unwrap_err()
            });
            eventually(PATIENCE, "the writer waits", || queued(&arena, "k") == 1);
            let behind = Waiting::start(arena.other.read("k"));
            behind.must_wait();
            assert!(writer.join().unwrap().is_busy());
            let gave_up = Instant::now();
            behind.must_have_it();
            let took = gave_up.elapsed();
            behind.finish();
            reader.blocking_release().unwrap();
            took
        });
        arena.assert_clean();
    }
}

#[test]
fn l4_a_dead_waiter_delays_no_other() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    // A waiting writer without a subscriber on its channel.
    let dies = || {
        let now: Vec<u64> = server.run("TIME");
        let end = (now[0] + 60) * 1000;
        let mut entry = redis::cmd("HSET");
        entry.arg("lock:{lock:k}:~w").arg("rl1.dead").arg(format!("{end}/w0 lock:~m:dead"));
        server.query::<()>(&entry).unwrap();
        server.run::<()>("ZADD lock:{lock:k}:~q 1 rl1.dead");
    };
    let reader = take(arena.one.read("k"));
    dies();
    assert!(is_free(arena.other.read("k")), "no waiter is before it");
    reader.blocking_release().unwrap();

    must_be_prompt(NOTIFIED, "the dead waiter is passed over", || {
        let writer = take(arena.one.write("k"));
        dies();
        let behind = Waiting::start(arena.other.write("k"));
        behind.must_wait();
        writer.blocking_release().unwrap();
        let released = Instant::now();
        behind.must_have_it();
        let took = released.elapsed();
        behind.finish();
        took
    });
    arena.assert_clean();
}

#[test]
fn l5_a_clock_that_jumps_neither_reorders_nor_stops_the_queue() {
    let Some(shim) = ClockShim::new() else { testbed::skip!("needs a C compiler") };
    let arena = Arena::on("shimmed", Server::builder().clock(&shim).start());
    for jump in [-3_600.0, 0.0, 3_600.0] {
        let writer = take(arena.one.write("k"));
        let first = Waiting::start(arena.other.write("k"));
        eventually(PATIENCE, "the first waits", || queued(&arena, "k") == 1);
        shim.set(jump);
        let second = Waiting::start(arena.other.write("k"));
        if jump <= 0.0 {
            eventually(PATIENCE, "the second waits", || queued(&arena, "k") == 2);
            writer.blocking_release().unwrap();
            first.must_have_it();
            second.must_wait();
            first.finish();
            second.must_have_it();
            second.finish();
        } else {
            // All leases and places have ended: both come to their turn, in whatever order.
            drop(writer);
            finish_all(vec![first, second]);
        }
        // The clock being set back must not leave leases that last for an hour.
        shim.set(0.0);
    }
}

#[test]
fn downgrade_keeps_writers_out_and_lets_readers_in() {
    for arena in Arena::each() {
        let writer = take(arena.one.write("k").fenced());
        let (token, fence) = (writer.token().clone(), writer.fence());
        let reads = Waiting::start(arena.other.read("k"));
        eventually(PATIENCE, "one waits", || queued(&arena, "k") == 1);
        let writes = Waiting::start(arena.other.write("k"));
        eventually(PATIENCE, "two wait", || queued(&arena, "k") == 2);
        let reader = writer.blocking_downgrade().unwrap();
        assert_eq!((reader.token(), reader.fence()), (&token, fence));
        reads.must_have_it();
        reads.finish();
        writes.must_wait();
        reader.blocking_verify().unwrap();
        reader.blocking_extend(ms(40_000)).unwrap();
        reader.blocking_release().unwrap();
        writes.must_have_it();
        writes.finish();
        arena.assert_clean();
    }
}

#[test]
fn only_a_writer_can_be_downgraded() {
    for arena in Arena::each() {
        for request in [arena.one.read("k"), arena.one.mutex("k"), arena.one.permit("k", 2)] {
            let error = take(request).blocking_downgrade().unwrap_err();
            assert!(matches!(error, LockError::WrongHold { .. }), "{error}");
            eventually(PATIENCE, "the guard is gone, and so is the lock", || {
                is_free(arena.other.mutex("k"))
            });
        }
        let reader = take(arena.one.write("k")).blocking_downgrade().unwrap();
        assert!(reader.blocking_downgrade().is_err(), "once");
        arena.assert_clean();
    }
}

#[tokio::test]
async fn asking_to_write_while_reading_is_an_error_and_no_deadlock() {
    for arena in Arena::each() {
        let locks = &arena.one;
        for reentrant in [false, true] {
            let inner = locks
                .read("k")
                .run(async |_| {
                    let write = locks.write("k").wait(PATIENCE);
                    let write = if reentrant { write.reentrant() } else { write };
                    write.run(async |_| ()).await
                })
                .await
                .unwrap();
            match inner {
                Err(LockError::Reentrant { key, .. }) if !reentrant => assert_eq!(key, "k"),
                Err(LockError::WrongHold { .. }) if reentrant => {}
                other => panic!("{}: {other:?}", arena.name),
            }
        }
        let read_below = locks
            .write("k")
            .run(async |_| locks.read("k").reentrant().run(async |_| 1).await)
            .await
            .unwrap();
        assert_eq!(read_below.unwrap(), 1);
        arena.assert_clean();
    }
}

#[test]
fn fair_off_lets_a_reader_in_ahead_of_the_queue() {
    for arena in Arena::each() {
        let reader = take(arena.one.read("k"));
        let writer = Waiting::start(arena.other.write("k"));
        // In memory a waiter is seen a moment before it has its place.
        eventually(PATIENCE, "readers queue behind the writer", || !is_free(arena.other.read("k")));
        assert!(!is_free(arena.other.read("k")), "behind the writer");
        assert!(is_free(arena.other.read("k").fair(false)), "{}", arena.name);
        assert!(!is_free(arena.other.write("k").fair(false)), "what is not free stays so");
        reader.blocking_release().unwrap();
        writer.must_have_it();
        writer.finish();
        arena.assert_clean();
    }
}

#[test]
fn at_maxmemory_holders_are_renewed_released_and_followed() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let reader = take(arena.one.read("k").ttl(ms(1_200)));
    let writer = Waiting::start(arena.other.write("k").ttl(ms(1_200)));
    let permit = take(arena.one.permit("p", 2).ttl(ms(1_200)));
    eventually(PATIENCE, "the writer waits", || queued(&arena, "k") == 1);
    server.run::<()>("CONFIG SET maxmemory 1");
    let start = Instant::now();
    eventually(PATIENCE, "several leases have passed", || start.elapsed() > ms(2_500));
    assert_eq!((reader.state(), permit.state()), (LockState::Held, LockState::Held));
    reader.blocking_release().unwrap();
    writer.must_have_it();
    writer.finish();
    let writer = arena.one.write("fresh").no_wait().blocking_acquire();
    assert!(matches!(writer, Err(LockError::Backend { .. })), "{writer:?}");
    permit.blocking_release().unwrap();
    server.run::<()>("CONFIG SET maxmemory 0");
    let writer = take(arena.one.write("k").wait(PATIENCE));
    server.run::<()>("CONFIG SET maxmemory 1");
    writer.blocking_downgrade().unwrap().blocking_release().unwrap();
    server.run::<()>("CONFIG SET maxmemory 0");
    arena.assert_clean();
}

#[test]
fn a_removed_lock_is_lost_to_all_who_had_it() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let first = take(arena.one.read("k").ttl(ms(600)));
    let second = take(arena.other.read("k").ttl(ms(600)));
    server.run::<()>("DEL lock:k");
    for guard in [first, second] {
        let error = guard.blocking_verify().unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert_eq!(guard.state(), LockState::Lost);
    }
}

#[tokio::test]
async fn cancelling_an_acquisition_anywhere_leaves_nothing() {
    for arena in Arena::each() {
        cancel_everywhere(&arena, |locks| locks.write("k")).await;
        let writer = arena.other.write("k");
        cancel_everywhere(&arena, |locks| locks.read("k")).await;
        drop(writer);
    }
}

#[test]
fn kinds_do_not_mix_and_nothing_is_altered() {
    type Make = fn(&Locks) -> LockRequest;
    let kinds: [(&str, Make); 5] = [
        ("mutex", |locks| locks.mutex("k")),
        ("all", |locks| locks.all(["j", "k"])),
        ("read", |locks| locks.read("k")),
        ("write", |locks| locks.write("k")),
        ("permit", |locks| locks.permit("k", 3)),
    ];
    let sort = |kind: &str| match kind {
        "mutex" | "all" => 1,
        "read" | "write" => 2,
        _ => 3,
    };
    for arena in Arena::each() {
        for (held, hold) in &kinds {
            let guard = take(hold(&arena.one));
            for (asked, ask) in kinds.iter().filter(|(asked, _)| sort(asked) != sort(held)) {
                let error = refused(ask(&arena.other).wait(PATIENCE));
                let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
                assert!(
                    source.kind() == BackendErrorKind::OtherKind && !error.is_retryable(),
                    "{}: {asked} while {held}: {error:?}",
                    arena.name
                );
            }
            guard.blocking_verify().unwrap();
            guard.blocking_release().unwrap();
        }
        arena.assert_clean();
    }
}

#[test]
fn data_of_other_programs_are_reported_and_left_alone() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    for (make, look) in [
        ("SET lock:k value", "GET lock:k"),
        ("ZADD lock:k 1 r:member", "ZRANGE lock:k 0 -1"),
        ("HSET lock:k field value", "HGETALL lock:k"),
        ("RPUSH lock:k item", "LRANGE lock:k 0 -1"),
        ("SADD lock:k item", "SMEMBERS lock:k"),
    ] {
        server.run::<redis::Value>(make);
        let before: redis::Value = server.run(look);
        for request in [arena.one.read("k"), arena.one.write("k"), arena.one.permit("k", 1)] {
            let error = refused(request.wait(PATIENCE));
            let LockError::Backend { source, .. } = &error else { panic!("{make}: {error:?}") };
            assert!(!source.is_retryable(), "{error}");
        }
        for request in [arena.one.mutex("k"), arena.one.all(["k", "l"])] {
            let error = refused(request.wait(PATIENCE));
            assert!(matches!(error, LockError::Backend { .. }), "{make}: {error:?}");
        }
        assert_eq!(server.run::<redis::Value>(look), before, "{make}");
        server.run::<()>("DEL lock:k");
    }
    arena.assert_clean();
}
