//! What is promised of several keys at once, on one slot and over several.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use redis_locks::{LockState, Locks};
use testbed::eventually;

use crate::arena::{Arena, PATIENCE, is_free, ms, take};

pub(crate) const KEYS: [&str; 3] = ["a", "b", "c"];

/// Tasks of these managers take one to four of five keys, from a different one on, in both
/// directions. No two have a key at once, and all come to an end.
pub(crate) fn tasks_with_sets_in_any_order_progress(managers: &[&Locks]) {
    const KEYS: usize = 5;
    let inside: [AtomicUsize; KEYS] = Default::default();
    let count: [AtomicUsize; KEYS] = Default::default();
    thread::scope(|scope| {
        for number in 0..20_usize {
            let (inside, count) = (&inside, &count);
            let locks = managers[number % managers.len()];
            scope.spawn(move || {
                for turn in 0..6_usize {
                    let from = number * 7 + turn * 3;
                    let size = 1 + (number + turn) % 4;
                    let mut keys: Vec<usize> =
                        (0..size).map(|step| (from + step * 2) % KEYS).collect();
                    if number % 3 == 0 {
                        keys.reverse();
                    }
                    let names = keys.iter().map(|key| format!("key:{key}"));
                    let guard = take(locks.all(names).wait(3 * PATIENCE));
                    for key in &keys {
                        assert_eq!(inside[*key].fetch_add(1, Ordering::SeqCst), 0);
                    }
                    thread::yield_now();
                    assert!(guard.is_held());
                    for key in &keys {
                        inside[*key].fetch_sub(1, Ordering::SeqCst);
                        count[*key].fetch_add(1, Ordering::SeqCst);
                    }
                    guard.blocking_release().unwrap();
                }
            });
        }
    });
    assert!(count.iter().all(|count| count.load(Ordering::SeqCst) > 0));
}

/// Each key is busy nearly all the time, and two of them are hardly ever free at once.
pub(crate) fn who_needs_many_keys_does_not_starve(arena: &Arena, times: usize) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for key in KEYS.into_iter().chain(KEYS) {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let guard = take(arena.one.mutex(key).wait(PATIENCE));
                    thread::sleep(ms(20));
                    guard.blocking_release().unwrap();
                }
            });
        }
        let acquire = |_| {
            let guard = arena.other.all(KEYS).wait(PATIENCE).blocking_acquire();
            guard.and_then(|guard| guard.blocking_release())
        };
        let took: Vec<_> = (0..times).map(acquire).collect();
        stop.store(true, Ordering::Relaxed);
        took.into_iter().for_each(|took| took.unwrap());
    });
    arena.assert_clean();
}

/// The holder learns of it with the reason, and the other keys are free.
pub(crate) fn releasing_one_by_force_ends_all(arena: &Arena) {
    let guard = take(arena.one.all(KEYS));
    assert!(arena.other.blocking_force_release("c", "it hangs").unwrap());
    let error = guard.blocking_verify().unwrap_err().to_string();
    assert!(error.contains("it hangs"), "{}: {error}", arena.name);
    eventually(PATIENCE, "the holder learns of it", || guard.state() == LockState::Lost);
    eventually(PATIENCE, "the other keys are free", || is_free(arena.other.all(["a", "b"])));
    drop(guard);
    arena.assert_clean();
}
