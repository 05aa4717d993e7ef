//! Several keys at once on a server in cluster mode, where no script may touch two slots: the keys
//! are taken in several steps, and what is promised is the same.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, LockState, Locks};
use testbed::{Child, ChildIo, Proxy, Server, eventually, holds_for, must_be_prompt};

use crate::arena::{
    Arena, NOTIFIED, PATIENCE, PLACE, Waiting, cancel_everywhere, is_free, ms, queued, take,
};
use crate::together::{self, KEYS};

fn slot(server: &Server, key: &str) -> u16 {
    server.run(&format!("CLUSTER KEYSLOT lock:{key}"))
}

/// The keys in the order in which they are taken.
fn in_order(arena: &Arena) -> [&'static str; 3] {
    let server = arena.server.as_ref().unwrap();
    let mut keys = KEYS;
    keys.sort_by_key(|key| slot(server, key));
    let slots: BTreeSet<u16> = keys.iter().map(|key| slot(server, key)).collect();
    assert_eq!(slots.len(), keys.len(), "each is in a slot of its own");
    keys
}

/// Whether a guard is what the server says, at each key.
fn has_all(server: &Server, guard: &Guard, keys: &[&str]) -> bool {
    let token = guard.token().to_string();
    keys.iter().all(|key| {
        let holder = server.get(&format!("lock:{key}"));
        holder.is_some_and(|holder| holder.trim_end_matches('+') == token)
    })
}

#[test]
fn it_excludes_a_mutex_on_any_of_its_keys() {
    for arena in Arena::clusters() {
        in_order(&arena);
        for key in KEYS {
            let busy = take(arena.one.mutex(key));
            assert!(!is_free(arena.other.all(KEYS)), "{}: {key}", arena.name);
            busy.blocking_release().unwrap();
        }
        let all = take(arena.one.all(KEYS));
        all.blocking_verify().unwrap();
        for key in KEYS {
            assert!(!is_free(arena.other.mutex(key)), "{}: {key}", arena.name);
        }
        assert!(!is_free(arena.other.all(["c", "d"])));
        assert!(is_free(arena.other.mutex("d")), "an attempt in vain leaves nothing");
        all.blocking_release().unwrap();
        assert!(is_free(arena.other.all(KEYS)));
        arena.assert_clean();
    }
}

#[test]
fn whatever_is_busy_the_others_stay_free() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        for busy in KEYS {
            must_be_prompt(NOTIFIED, arena.name, || {
                let holder = take(arena.one.mutex(busy));
                assert!(arena.other.all(KEYS).blocking_try_acquire().unwrap().is_none());
                assert_eq!(server.keys(), [format!("lock:{busy}")], "{}", arena.name);

                let waiting = Waiting::start(arena.other.all(KEYS));
                eventually(PATIENCE, "it waits for the busy one", || queued(&arena, busy) == 1);
                for key in KEYS.iter().filter(|key| **key != busy) {
                    let free = || is_free(arena.one.mutex(*key));
                    eventually(ms(5_000), "what is free is acquired by others", free);
                    assert_eq!(queued(&arena, key), 0, "it waits in one queue");
                }
                let released = Instant::now();
                holder.blocking_release().unwrap();
                waiting.must_have_it();
                let took = released.elapsed();
                waiting.finish();
                took
            });
        }
        arena.assert_clean();
    }
}

#[test]
fn after_rounds_in_vain_it_keeps_what_comes_first() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let [first, middle, last] = in_order(&arena).map(|key| format!("lock:{key}"));
        let busy = take(arena.one.mutex(last.trim_start_matches("lock:")));
        let waiting = Waiting::start(arena.other.all(KEYS));
        let place = i64::try_from(PLACE.as_millis()).unwrap();
        eventually(PATIENCE, "it keeps the first two for as long as its place lasts", || {
            [&first, &middle].iter().all(|key| server.pttl(key).is_some_and(|left| left <= place))
        });
        holds_for(ms(2_500), "and goes on keeping them", || {
            [&first, &middle].iter().all(|key| server.exists(key))
        });
        busy.blocking_release().unwrap();
        waiting.must_have_it();
        eventually(PATIENCE, "with a lease", || server.pttl(&first).unwrap() > 10_000);
        waiting.finish();
        arena.assert_clean();
    }
}

#[test]
fn l7_tasks_of_several_managers_with_sets_in_any_order_progress() {
    for arena in Arena::clusters() {
        let third = arena.third();
        together::tasks_with_sets_in_any_order_progress(&[&arena.one, &arena.other, &third]);
        arena.assert_clean();
    }
}

#[test]
fn l7_a_call_for_many_keys_does_not_starve() {
    for arena in Arena::clusters() {
        together::who_needs_many_keys_does_not_starve(&arena, 1);
    }
}

#[tokio::test]
async fn dropping_an_acquisition_anywhere_leaves_nothing() {
    for arena in Arena::clusters() {
        cancel_everywhere(&arena, |locks| locks.all(KEYS)).await;
        cancel_everywhere(&arena, |locks| locks.all(KEYS).fenced()).await;
    }
}

#[test]
fn loss_of_one_is_loss_of_all() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        for lost in KEYS {
            let guard = take(arena.one.all(KEYS).ttl(ms(1_500)));
            server.run::<()>(&format!("DEL lock:{lost}"));
            eventually(PATIENCE, "the next renewal finds out", || guard.state() == LockState::Lost);
            let given_back = || server.keys().iter().all(|key| key.contains(":~"));
            // Sooner than their lease would have ended.
            eventually(ms(800), "the rest is given back", given_back);
            assert!(guard.blocking_release().unwrap_err().is_lost());
        }

        let guard = take(arena.one.all(KEYS));
        server.run::<()>("SET lock:b foreign PX 30000");
        assert!(guard.blocking_verify().unwrap_err().is_lost());
        eventually(ms(5_000), "what is ours is given back", || {
            !server.exists("lock:a") && !server.exists("lock:c")
        });
        assert_eq!(server.get("lock:b").as_deref(), Some("foreign"), "what is not stays");
        server.run::<()>("DEL lock:b");
        drop(guard);
        arena.assert_clean();
    }
}

#[test]
fn releasing_by_force_what_is_one_of_several_ends_all() {
    for arena in Arena::clusters() {
        together::releasing_one_by_force_ends_all(&arena);
    }
}

#[test]
fn m1_one_number_is_above_those_of_every_key() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        // Counters run ahead of the clock where it was set back: each key has its own past.
        for (ahead, key) in in_order(&arena).iter().enumerate() {
            let since = std::time::UNIX_EPOCH.elapsed().unwrap();
            let last = since.as_micros() + 3_600_000_000 * (ahead as u128 % 2 + 1);
            let mut set = redis::cmd("SET");
            let set = set.arg(format!("lock:{{lock:{key}}}:~f")).arg(format!("{last} somebody"));
            server.query::<()>(set.arg("PX").arg(60_000)).unwrap();
        }
        let mut last = [0; 3];
        for turn in 0..24 {
            let (locks, held) =
                if turn % 2 == 0 { (&arena.one, turn % 7) } else { (&arena.other, turn % 5) };
            // Which of the keys: a mutex, two of them, or all.
            let which: &[usize] =
                [&[0][..], &[0, 1], &[1], &[2, 1], &[0, 2, 1], &[2], &[2, 0]][held];
            let request = match which {
                [one] => locks.mutex(KEYS[*one]),
                several => locks.all(several.iter().map(|key| KEYS[*key])),
            };
            let guard = take(request.fenced());
            let number = guard.fence().unwrap();
            for key in which {
                assert!(number > last[*key], "{}: turn {turn}, {which:?}", arena.name);
                last[*key] = number;
            }
            guard.blocking_release().unwrap();
        }
        arena.assert_clean();
    }
}

#[test]
fn m2_a_lost_reply_changes_no_number() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let proxy = Proxy::to(server.port());
        let locks = Locks::builder().url(proxy.url()).command_timeout(ms(500)).open().unwrap();
        // So that the scripts are known, and the connection stands.
        take(locks.all(KEYS).fenced()).blocking_release().unwrap();
        for text in ["lock:a", "~f"] {
            proxy.cut_reply_to(text);
            let cuts = proxy.cuts();
            let guard = take(locks.all(KEYS).fenced().wait(PATIENCE));
            assert!(proxy.cuts() > cuts, "the reply was lost");
            let number = guard.fence().unwrap();
            assert!(has_all(server, &guard, &KEYS));
            let counters: Vec<_> =
                KEYS.iter().map(|key| server.get(&format!("lock:{{lock:{key}}}:~f"))).collect();
            for counter in counters {
                let counter = counter.unwrap();
                let (last, owner) = counter.split_once(' ').unwrap();
                assert_eq!(owner, guard.token().to_string());
                assert_eq!(last.parse::<u64>().unwrap(), number + 31, "{}: {text}", arena.name);
            }
            guard.blocking_release().unwrap();
        }
        arena.assert_clean();
    }
}

#[test]
fn as_many_slots_as_keys_may_be_taken() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let mut slots = BTreeSet::new();
        let names = (0..).map(|number: u32| number.to_string());
        let keys: Vec<String> =
            names.filter(|key| slots.insert(slot(server, key))).take(128).collect();
        for request in [arena.one.all(&keys[..]), arena.one.all(&keys[..]).fenced()] {
            let guard = take(request.ttl(ms(1_500)));
            assert!(!is_free(arena.other.mutex(keys[77].as_str())));
            holds_for(ms(2_500), "it is renewed", || guard.state() == LockState::Held);
            guard.blocking_verify().unwrap();
            let next = Waiting::start(arena.other.all(&keys[100..]));
            eventually(PATIENCE, "the next waits", || {
                keys[100..].iter().any(|key| queued(&arena, key) == 1)
            });
            guard.blocking_release().unwrap();
            next.must_have_it();
            next.finish();
        }
        arena.assert_clean();
    }
}

#[test]
fn who_waits_asks_for_what_it_waits_for_and_not_for_all() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let mut keys: Vec<String> = (0..64).map(|number| number.to_string()).collect();
        keys.sort_by_key(|key| slot(server, key));
        let busy = take(arena.one.mutex(keys[0].as_str()));
        let waiting = Waiting::start(arena.other.all(&keys[..]));
        eventually(PATIENCE, "it waits", || queued(&arena, &keys[0]) == 1);
        eventually(PATIENCE, "and has none of the others", || server.keys().len() == 3);
        server.reset_counts();
        waiting.must_wait();
        let start = Instant::now();
        eventually(PATIENCE, "it has looked some times", || start.elapsed() > ms(3_000));
        let scripts = server.command_counts().get("evalsha").copied().unwrap_or(0);
        assert!((1..40).contains(&scripts), "{}: {scripts} in 3 s", arena.name);
        busy.blocking_release().unwrap();
        waiting.must_have_it();
        waiting.finish();
        arena.assert_clean();
    }
}

#[test]
fn keys_of_one_slot_are_taken_in_one_step() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let once = |keys: [&str; 3], steps: usize| {
            // The scripts are known after a first time.
            take(arena.one.all(keys)).blocking_release().unwrap();
            let monitor = server.monitor();
            let guard = take(arena.one.all(keys));
            guard.blocking_verify().unwrap();
            guard.blocking_release().unwrap();
            // A later command, whose record shows that everything before it was recorded.
            take(arena.other.mutex("mark")).blocking_release().unwrap();
            eventually(PATIENCE, "all is recorded", || monitor.count("lock:mark") >= 2);
            let lines = monitor.lines();
            let token = guard_token(&lines);
            let script = |line: &&String| line.contains("EVALSHA") && line.contains(&token);
            assert_eq!(lines.iter().filter(script).count(), 3 * steps, "{keys:?}: {lines:#?}");
        };
        once(["{t}a", "{t}b", "{t}c"], 1);
        once(["a", "b", "c"], 3);
        once(["a", "{t}b", "{t}c"], 2);
        arena.assert_clean();
    }
}

/// Any part of a token that identifies it.
fn guard_token(lines: &[String]) -> String {
    let line = lines.iter().find(|line| line.contains("\"rl1.")).expect("a token was sent");
    let from = line.find("rl1.").unwrap();
    line[from..from + 36].to_owned()
}

#[test]
fn a_server_that_keeps_its_mode_to_itself_is_found_out() {
    let rights = "app on >secret ~lock:* &lock:* +@all -info";
    let server = Server::builder().cluster().user(rights).start();
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let locks = Locks::open(url).unwrap();
    for _ in 0..2 {
        let guard = take(locks.all(KEYS).fenced());
        assert!(has_all(&server, &guard, &KEYS));
        guard.blocking_release().unwrap();
    }
    server.assert_clean();
}

/// A command that gives keys back can arrive after a later attempt has got the same keys, if it was
/// on its way on a connection that was given up.
#[test]
fn a_late_return_of_keys_takes_nothing_from_their_new_holder() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let [.., last] = in_order(&arena);
        let proxy = Proxy::to(server.port());
        let locks = Locks::builder().url(proxy.url()).command_timeout(ms(800)).open().unwrap();
        take(locks.all(KEYS)).blocking_release().unwrap();

        let busy = take(arena.one.mutex(last));
        proxy.delay_down(ms(300));
        let request = locks.all(KEYS).wait(PATIENCE);
        let waiting = thread::spawn(move || take(request));
        eventually(PATIENCE, "it was asked for", || queued(&arena, last) == 1);
        // Its answers are on their way; the commands by which it gives keys back then get stuck.
        let stuck = proxy.existing();
        proxy.delay_down(Duration::ZERO);
        stuck.delay_down(ms(300));
        stuck.hole_up();
        eventually(PATIENCE, "another connection is made", || {
            proxy.existing().count() > stuck.count()
        });
        busy.blocking_release().unwrap();
        let guard = waiting.join().unwrap();
        assert!(has_all(server, &guard, &KEYS), "{}", arena.name);
        stuck.pass();
        holds_for(ms(700), "it has them all the time", || has_all(server, &guard, &KEYS));
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        arena.assert_clean();
    }
}

#[test]
fn a_connection_that_is_cut_anywhere_leaves_nothing() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        let [first, _, last] = in_order(&arena);
        for busy in [None, Some(first), Some(last)] {
            // The connection is cut after some of the answers, or after all of them, while keys are
            // being given back.
            for bytes in [1, 60, 150, 300, 450] {
                let holder = busy.map(|busy| take(arena.one.mutex(busy)));
                let proxy = Proxy::to(server.port());
                let locks =
                    Locks::builder().url(proxy.url()).command_timeout(ms(500)).open().unwrap();
                take(locks.mutex("other")).blocking_release().unwrap();
                proxy.existing().cut_after(bytes);
                let outcome = locks.all(KEYS).wait(ms(300)).blocking_acquire();
                match (outcome, holder.is_some()) {
                    (Ok(guard), false) => {
                        assert!(has_all(server, &guard, &KEYS));
                        guard.blocking_release().unwrap();
                    }
                    (Err(error), _) => assert!(
                        error.is_busy() || matches!(error, LockError::Backend { .. }),
                        "{error}"
                    ),
                    (Ok(_), true) => panic!("it got what another has"),
                }
                if let Some(holder) = holder {
                    holder.blocking_verify().unwrap();
                    holder.blocking_release().unwrap();
                }
                arena.assert_clean();
            }
        }
    }
}

/// Takes and releases all keys for as long as it lives.
pub(crate) fn take_all_the_time(_: &mut ChildIo) {
    let locks = Locks::open(std::env::var("REDIS_URL").unwrap()).unwrap();
    loop {
        let guard = locks.all(KEYS).ttl(ms(700)).blocking_acquire().unwrap();
        guard.blocking_release().unwrap();
    }
}

#[test]
fn l4_processes_killed_in_the_midst_of_it_block_nobody_for_longer_than_their_lease() {
    for arena in Arena::clusters() {
        let server = arena.server.as_ref().unwrap();
        for _ in 0..5 {
            let url = server.url();
            let start = || Child::spawn("slots_take_all_the_time", &[("REDIS_URL", &url)]);
            let mut children = [start(), start(), start()];
            server.reset_counts();
            let scripts = || server.command_counts().get("evalsha").copied().unwrap_or(0);
            eventually(PATIENCE, "they are at it", || scripts() > 200);
            children.iter_mut().for_each(Child::kill9);
            let killed = Instant::now();
            for key in server.keys() {
                assert!(server.pttl(&key) != Some(-1), "{key} would stay");
            }
            let guard = take(arena.one.all(KEYS).wait(PATIENCE));
            // The lease, or what is kept while waiting, and a claim.
            assert!(killed.elapsed() < PLACE + ms(1_500), "{:?}", killed.elapsed());
            guard.blocking_release().unwrap();
        }
        let places = |key: &String| key.ends_with(":~q") || key.ends_with(":~w");
        eventually(2 * PLACE, "the places of the dead end", || !server.keys().iter().any(places));
        arena.assert_clean();
    }
}
