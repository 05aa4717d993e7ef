//! Fencing numbers: strictly rising per key, in the order of holding, whatever happens.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;

use redis_locks::{ConfigError, Guard, LockError, LockRequest, LockState, Locks};
use testbed::{Child, ChildIo, ClockShim, Proxy, Server, eventually};

use crate::arena::{Arena, PATIENCE, crash, ms, refused, take};

type Make = fn(&Locks) -> LockRequest;

const KINDS: [(&str, Make); 3] = [
    ("mutex", |locks| locks.mutex("k")),
    ("write", |locks| locks.write("k")),
    ("all", |locks| locks.all(["j", "k"])),
];

#[track_caller]
fn number(guard: &Guard) -> u64 {
    guard.fence().expect("it was asked for")
}

#[test]
fn m1_numbers_rise_strictly_among_tasks_and_processes() {
    for arena in Arena::each() {
        for (kind, make) in KINDS {
            let numbers = Mutex::new(Vec::new());
            thread::scope(|scope| {
                for thread in 0..6 {
                    let (arena, numbers) = (&arena, &numbers);
                    scope.spawn(move || {
                        let locks = if thread % 2 == 0 { &arena.one } else { &arena.other };
                        for _ in 0..60 {
                            let guard = take(make(locks).fenced().wait(PATIENCE));
                            numbers.lock().unwrap().push(number(&guard));
                            guard.blocking_release().unwrap();
                        }
                    });
                }
            });
            let numbers = numbers.into_inner().unwrap();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{}: {kind}", arena.name);
        }
        arena.assert_clean();
    }
}

#[test]
fn the_number_of_an_adopter_is_not_below_that_of_any_hold_before_it() {
    for arena in Arena::each() {
        for (kind, make) in KINDS {
            let mut last = number(&take(make(&arena.one).fenced().wait(PATIENCE)));
            let mut guard = take(make(&arena.one).fenced().wait(PATIENCE));
            // The next callers of this process are handed the lease, if this kind of lock is handed
            // over.
            for _ in 0..3 {
                let next = thread::spawn({
                    let request = make(&arena.one).fenced().wait(PATIENCE);
                    move || take(request)
                });
                eventually(PATIENCE, "it waits", || {
                    let waits = |key| !arena.one.blocking_status(key).unwrap().waiters.is_empty();
                    waits("j") || waits("k") || next.is_finished()
                });
                drop(guard);
                guard = next.join().unwrap();
                assert!(number(&guard) > last, "{}: {kind}", arena.name);
                last = number(&guard);
            }
            let token = guard.detach().to_string();
            let adopts = |locks: &Locks| make(locks).blocking_adopt(token.parse().unwrap());
            let adopted = adopts(&arena.other).unwrap();
            assert!(
                number(&adopted) >= last,
                "{}: {kind}: {} and {last}",
                arena.name,
                number(&adopted)
            );
            last = number(&adopted);
            assert_eq!(number(&adopts(&arena.one).unwrap()), last, "{}: {kind}", arena.name);
            drop(adopted);
            let next = take(make(&arena.one).fenced().wait(PATIENCE));
            assert!(number(&next) > last, "{}: {kind}", arena.name);
            next.blocking_release().unwrap();
        }
        arena.assert_clean();
    }
}

#[test]
fn numbers_of_readers_and_permits_are_refused() {
    for arena in Arena::each() {
        for shared in [arena.one.read("k"), arena.one.permit("k", 1)] {
            let error = refused(shared.fenced());
            let LockError::InvalidConfig { cause, .. } = &error else { panic!("{error}") };
            assert!(matches!(cause, ConfigError::Conflict { option: "fenced", .. }), "{error}");
        }
        arena.assert_clean();
    }
}

#[test]
fn m1_one_counter_serves_all_kinds_of_a_key() {
    for arena in Arena::each() {
        let mut last = 0;
        for turn in 0..20 {
            let (kind, make) = KINDS[turn % KINDS.len()];
            let guard = take(make(&arena.one).fenced().wait(PATIENCE));
            assert!(number(&guard) > last, "{}: {kind}", arena.name);
            last = number(&guard);
            guard.blocking_release().unwrap();
        }
    }
}

#[test]
fn who_does_not_ask_for_a_number_has_none_and_leaves_no_counter() {
    let arena = Arena::server();
    for (kind, make) in KINDS {
        let guard = take(make(&arena.one));
        assert_eq!(guard.fence(), None, "{kind}");
        let refused = guard.fence_i64().unwrap_err();
        assert!(matches!(refused, LockError::InvalidConfig { .. }), "{kind}: {refused}");
        guard.blocking_release().unwrap();
    }
    assert_eq!(arena.server.unwrap().keys(), Vec::<String>::new());
}

#[test]
fn m2_a_retry_gets_the_number_of_the_try_whose_answer_was_lost() {
    let server = Server::start();
    for (kind, make) in KINDS {
        let proxy = Proxy::to(server.port());
        let locks = Locks::open(proxy.url()).unwrap();
        // Connected, and the scripts known.
        take(make(&locks).fenced()).blocking_release().unwrap();
        let counter = || server.get("lock:{lock:k}:~f").unwrap();
        let before = counter();
        proxy.hole_down();
        let acquiring = thread::spawn({
            let request = make(&locks).fenced().wait(PATIENCE);
            move || take(request)
        });
        eventually(PATIENCE, "it was executed", || counter() != before);
        let drawn = counter();
        proxy.pass();
        proxy.kill_all();
        let guard = acquiring.join().unwrap();
        assert_eq!(counter(), drawn, "{kind}: no second number was drawn");
        let last: u64 = drawn.split(' ').next().unwrap().parse().unwrap();
        assert!((last - 31..=last).contains(&number(&guard)), "{kind}");
        guard.blocking_release().unwrap();
        server.assert_clean();
    }
}

#[test]
fn m3_numbers_rise_after_everything_was_lost() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let mut last = 0;
    for round in 0..8 {
        for (kind, make) in KINDS {
            let guard = take(make(&locks).fenced().wait(PATIENCE));
            assert!(number(&guard) > last, "{kind} in round {round}");
            last = number(&guard);
            match round % 4 {
                0 => server.run::<()>("FLUSHALL"),
                1 => server.run::<()>("SCRIPT FLUSH"),
                2 => server.restart(),
                _ => ["k", "j"].iter().for_each(|key| {
                    server.run::<()>(&format!("DEL lock:{{lock:{key}}}:~f"));
                }),
            }
            drop(guard);
        }
    }
}

#[test]
fn m4_numbers_fall_only_when_the_counter_is_lost_and_the_clock_set_back() {
    let Some(shim) = ClockShim::new() else { testbed::skip!("needs a C compiler") };
    let server = Server::builder().clock(&shim).start();
    let locks = Locks::open(server.url()).unwrap();
    let draw = || {
        let guard = take(locks.mutex("k").fenced().wait(PATIENCE));
        let number = number(&guard);
        guard.blocking_release().unwrap();
        number
    };
    let clock = || server.run::<Vec<u64>>("TIME")[0];
    let first = draw();
    let now = clock();
    shim.set(-3_600.0);
    eventually(PATIENCE, "the clock is set back", || clock() < now - 3_000);
    let second = draw();
    assert!(second > first, "the counter remembers");
    server.run::<()>("DEL lock:{lock:k}:~f");
    assert!(draw() < second, "the documented exception");
    shim.set(0.0);
    eventually(PATIENCE, "the clock is right", || clock() >= now);
    assert!(draw() > second, "the clock brings it up again");
}

/// A store that refuses writers whose number is not above the last it has seen.
#[derive(Default)]
struct Fenced(HashMap<&'static str, (u64, String)>);

impl Fenced {
    fn write(&mut self, key: &'static str, fence: u64, value: &str) -> bool {
        let (last, stored) = self.0.entry(key).or_default();
        let newer = *last < fence;
        if newer {
            (*last, *stored) = (fence, value.to_owned());
        }
        newer
    }
}

#[test]
fn m5_a_store_refuses_a_holder_that_has_not_noticed_its_loss() {
    for arena in Arena::each() {
        let mut store = Fenced::default();
        let stale = take(arena.one.mutex("k").fenced().ttl(ms(300)).renew(false));
        let stale_number = number(&stale);
        let fresh = take(arena.other.mutex("k").fenced().wait(PATIENCE));
        assert!(store.write("row", number(&fresh), "fresh"));
        assert!(!store.write("row", stale_number, "stale"), "{}", arena.name);
        assert_eq!(store.0["row"].1, "fresh");
        crash(stale);
    }
}

/// Writes to `row` when its number is above the last, as `UPDATE … WHERE fence < $1` does.
const UPDATE: &str = "
local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if last >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1";

fn update(client: &redis::Client, fence: u64, value: &str) -> bool {
    let mut connection = client.get_connection().unwrap();
    redis::Script::new(UPDATE).key("row").arg(fence).arg(value).invoke(&mut connection).unwrap()
}

/// Takes the lock, and writes when the parent says so, whatever has happened meanwhile.
pub(crate) fn writer(io: &mut ChildIo) {
    let url = std::env::var("SERVER").unwrap();
    let locks = Locks::open(&url).unwrap();
    let guard = take(locks.mutex("k").fenced().ttl(ms(600)));
    let fence = number(&guard);
    io.say("holding");
    io.hear();
    let wrote = update(&redis::Client::open(url).unwrap(), fence, "stale");
    eventually(PATIENCE, "it finds out", || guard.state() == LockState::Lost);
    io.say(if wrote { "done wrote" } else { "done refused" });
}

#[test]
fn m5_a_frozen_process_that_wakes_up_is_refused() {
    let server = Server::start();
    let mut child = Child::spawn("fences_writer", &[("SERVER", &server.url())]);
    child.expect("holding");
    child.freeze();
    let locks = Locks::open(server.url()).unwrap();
    let guard = take(locks.mutex("k").fenced().wait(PATIENCE));
    assert!(update(&server.client(), number(&guard), "fresh"));
    child.tell("write");
    child.thaw();
    assert_eq!(child.expect("done").trim(), "refused");
    let value: String = server.run("HGET row value");
    assert_eq!(value, "fresh");
}

/// What may stand at a counter after a restore, a bug, or the work of another program.
const ODD_COUNTERS: [&str; 14] = [
    "9007199254740993",
    "288230376151711744",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1000000000000000000000",
    "99999999999999999999999999999999",
    "1e3",
    "inf",
    "nan",
    "-1",
    "0x10",
    "",
    "7\u{0}",
];

#[test]
fn a_counter_that_can_not_be_counted_on_from_is_refused_before_anything_is_written() {
    for arena in Arena::each().into_iter().chain([Arena::without_scripts()]) {
        let Some(server) = &arena.server else { continue };
        let client = server.client();
        let mut connection = client.get_connection().unwrap();
        for odd in ODD_COUNTERS {
            let counter = format!("{odd} rl1.x");
            for (kind, make) in KINDS {
                if arena.name == "transactions" && kind != "mutex" {
                    continue;
                }
                let set = |key: &str, connection: &mut redis::Connection| {
                    redis::cmd("SET").arg(key).arg(&counter).query::<()>(connection).unwrap();
                };
                set("lock:{lock:k}:~f", &mut connection);
                let refused = make(&arena.one).fenced().wait(PATIENCE).blocking_acquire();
                let error = refused.map(|guard| number(&guard)).unwrap_err();
                let LockError::Backend { source, .. } = &error else { panic!("{error}") };
                assert!(!source.is_retryable(), "{}: {kind}, {odd}: {error}", arena.name);
                assert!(error.to_string().contains("fencing counter"), "{error}");
                eventually(PATIENCE, "nothing is left", || server.keys() == ["lock:{lock:k}:~f"]);
            }
        }
        // Without numbers the lock is as good as ever, and a counter that is as large as can be is used up.
        take(arena.one.mutex("k")).blocking_release().unwrap();
        server.run::<()>("DEL lock:{lock:k}:~f");
        let most = (1_u64 << 53) - 32;
        let counter = format!("{most} rl1.x");
        let mut set = redis::cmd("SET");
        set.arg("lock:{lock:k}:~f").arg(&counter).query::<()>(&mut connection).unwrap();
        let guard = take(arena.one.mutex("k").fenced());
        assert_eq!(number(&guard), most + 1, "{}", arena.name);
        drop(guard);
        let error = arena.one.mutex("k").fenced().wait(PATIENCE).blocking_acquire().unwrap_err();
        assert!(error.to_string().contains("fencing counter"), "{error}");
    }
}
