//! The numbers of permits: `slotted`.

use std::sync::mpsc;
use std::thread;

use redis_locks::{Guard, LockError, LockRequest, Locks};
use testbed::eventually;

use crate::arena::{Arena, PATIENCE, crash, is_free, ms, queued, refused, take};

fn gpu(locks: &Locks, limit: u32) -> LockRequest {
    locks.permit("gpu", limit).slotted()
}

fn slots(guards: &[Guard]) -> Vec<Option<u32>> {
    guards.iter().map(Guard::slot).collect()
}

#[test]
fn sl1_the_lowest_free_number_is_given_and_kept() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        let mut held = vec![take(gpu(one, 4)), take(gpu(other, 4)), take(gpu(one, 4))];
        assert_eq!(slots(&held), [Some(0), Some(1), Some(2)], "{}", arena.name);
        held.remove(1).blocking_release().unwrap();
        held.push(take(gpu(other, 4)));
        assert_eq!(slots(&held), [Some(0), Some(2), Some(1)], "{}", arena.name);
        // What renews it, and what lengthens it, keeps the number.
        for guard in &held {
            guard.blocking_extend(ms(60_000)).unwrap();
            guard.blocking_verify().unwrap();
        }
        let mut seen: Vec<_> =
            one.blocking_status("gpu").unwrap().holders.iter().map(|it| it.slot).collect();
        seen.sort_unstable();
        assert_eq!(seen, [Some(0), Some(1), Some(2)], "{}", arena.name);
        for guard in held {
            guard.blocking_release().unwrap();
        }
        arena.assert_clean();
    }
}

#[test]
fn sl2_an_adopter_has_the_number_of_the_one_before() {
    for arena in Arena::each() {
        let _first = take(gpu(&arena.one, 3));
        let text = take(gpu(&arena.one, 3)).detach().to_string();
        // Also one that does not ask for it.
        let adopted = arena.other.permit("gpu", 3).blocking_adopt(text.parse().unwrap()).unwrap();
        assert_eq!(adopted.slot(), Some(1), "{}", arena.name);
        let again = gpu(&arena.one, 3).blocking_adopt(adopted.detach()).unwrap();
        assert_eq!(again.slot(), Some(1), "{}", arena.name);
        assert_eq!(take(gpu(&arena.other, 3)).slot(), Some(2));
        again.blocking_release().unwrap();
    }
}

#[test]
fn sl3_holders_without_a_number_take_a_place_and_leave_the_numbers() {
    for arena in Arena::each() {
        let plain = take(arena.one.permit("gpu", 3));
        let held = [take(gpu(&arena.other, 3)), take(gpu(&arena.one, 3))];
        assert_eq!((plain.slot(), slots(&held)), (None, vec![Some(0), Some(1)]), "{}", arena.name);
        assert!(!is_free(gpu(&arena.other, 3)), "all places are taken");
        plain.blocking_release().unwrap();
        let last = take(gpu(&arena.other, 3));
        assert_eq!(last.slot(), Some(2));
        assert!(!is_free(arena.one.permit("gpu", 3)), "a number takes a place");
    }
}

#[test]
fn sl4_newcomers_of_a_pool_that_shrinks_have_numbers_below_the_smallest_limit() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        let mut held: Vec<_> = (0..4).map(|_| take(gpu(one, 4))).collect();
        let last = held.pop().unwrap();
        let third = held.pop().unwrap();
        assert!(!is_free(gpu(other, 2)));
        held.into_iter().for_each(|guard| guard.blocking_release().unwrap());
        third.blocking_release().unwrap();
        let narrow = take(gpu(other, 2));
        assert_eq!((last.slot(), narrow.slot()), (Some(3), Some(0)), "{}", arena.name);
        assert!(!is_free(gpu(one, 4)), "the smaller limit counts");
        last.blocking_release().unwrap();
        assert_eq!(take(gpu(one, 4)).slot(), Some(1), "{}", arena.name);
        narrow.blocking_release().unwrap();
    }
}

#[test]
fn sl1_a_waiter_gets_the_number_that_has_become_free() {
    for arena in Arena::each() {
        let mut held: Vec<_> = (0..3).map(|_| take(gpu(&arena.one, 3))).collect();
        let (give, guards) = mpsc::channel();
        for (number, locks) in [&arena.other, &arena.one, &arena.other].into_iter().enumerate() {
            let (request, give) = (gpu(locks, 3).wait(PATIENCE), give.clone());
            thread::spawn(move || give.send(take(request)).unwrap());
            eventually(PATIENCE, "it waits", || queued(&arena, "gpu") == number + 1);
        }
        let mut kept = Vec::new();
        for free in [1, 1, 0] {
            let released = held.remove(free);
            let number = released.slot();
            released.blocking_release().unwrap();
            let next: Guard = guards.recv_timeout(PATIENCE).expect("it comes to its turn");
            assert_eq!(next.slot(), number, "{}", arena.name);
            kept.push(next);
        }
        assert_eq!(slots(&kept), [Some(1), Some(2), Some(0)], "{}", arena.name);
        kept.into_iter().for_each(|guard| guard.blocking_release().unwrap());
        arena.assert_clean();
    }
}

#[test]
fn sl1_a_number_is_free_when_the_lease_of_its_holder_has_ended() {
    for arena in Arena::each() {
        crash(take(gpu(&arena.one, 2).ttl(ms(500)).renew(false)));
        let second = take(gpu(&arena.one, 2));
        let next = take(gpu(&arena.other, 2).wait(PATIENCE));
        assert_eq!((second.slot(), next.slot()), (Some(1), Some(0)), "{}", arena.name);
    }
}

/// A process of an older version lets a waiter in, and rounds the ends of leases.
#[test]
fn sl5_beside_a_process_without_numbers_each_number_has_one_holder() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let held = take(gpu(&arena.one, 2));
    let plain = take(arena.one.permit("gpu", 2));
    let waiting = thread::spawn({
        let request = gpu(&arena.other, 2).wait(PATIENCE);
        move || request.blocking_acquire().unwrap()
    });
    eventually(PATIENCE, "it waits", || queued(&arena, "gpu") == 1);
    let waiter: Vec<String> = server.run("ZRANGE lock:{lock:gpu}:~q 0 0");
    let let_in = "local finish = redis.call('TIME')[1] * 1000 + 1000 \
                  redis.call('ZREM', KEYS[1], 'p:' .. ARGV[1]) \
                  redis.call('ZREM', KEYS[2], ARGV[2]) \
                  redis.call('HDEL', KEYS[3], ARGV[2]) \
                  redis.call('ZADD', KEYS[1], string.format('%.0f', finish), 'p:' .. ARGV[2])";
    let mut connection = server.client().get_connection().unwrap();
    let () = redis::Script::new(let_in)
        .key("lock:gpu")
        .key("lock:{lock:gpu}:~q")
        .key("lock:{lock:gpu}:~w")
        .arg(plain.token().to_string())
        .arg(&waiter[0])
        .invoke(&mut connection)
        .unwrap();
    let next = waiting.join().unwrap();
    assert_eq!((held.slot(), next.slot()), (Some(0), Some(1)));
}

#[test]
fn sl7_what_has_no_numbers_refuses_them() {
    for arena in Arena::each() {
        let locks = &arena.one;
        for request in [locks.mutex("k"), locks.read("k"), locks.write("k"), locks.all(["a", "b"])]
        {
            let error = refused(request.slotted());
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{error:?}");
        }
        assert!(is_free(gpu(locks, 500)));
        let error = refused(gpu(locks, 501));
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error:?}");
        arena.assert_clean();
    }
}

#[test]
fn sl2_a_nested_call_has_the_number_of_the_outer_one() {
    for arena in Arena::each() {
        let locks = arena.one.clone();
        let inner = gpu(&locks, 2).reentrant();
        let slot_within = |outer: LockRequest| {
            let nested = |_: &Guard| inner.clone().blocking_acquire().map(|it| it.slot());
            outer.blocking_run(nested).unwrap()
        };
        assert_eq!(slot_within(gpu(&locks, 2)).unwrap(), Some(0), "{}", arena.name);
        let refused = slot_within(locks.permit("gpu", 2)).unwrap_err();
        assert!(matches!(refused, LockError::WrongHold { .. }), "{refused:?}");
    }
}
