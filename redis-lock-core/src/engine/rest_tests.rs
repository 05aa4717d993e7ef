//! Nothing of what is over stays behind.

use std::time::Duration;

use testbed::{Server, eventually};

use crate::{Guard, Locks};

const PATIENCE: Duration = Duration::from_secs(10);
const KEYS: usize = 200;

/// Holds, tries beside them, waits that are given up, hand-overs: on many keys at once.
fn contend(one: &Locks, other: &Locks) {
    let key = |number: usize| format!("key:{number}");
    let guards: Vec<Guard> =
        (0..KEYS).map(|number| one.mutex(key(number)).blocking_acquire().unwrap()).collect();
    for number in 0..KEYS {
        for locks in [one, other] {
            assert!(locks.mutex(key(number)).blocking_try_acquire().unwrap().is_none());
        }
        let wait = other.mutex(key(number)).wait(Duration::from_millis(1));
        assert!(wait.blocking_acquire().is_err_and(|error| error.is_busy()));
    }
    drop(guards);
    for number in 0..KEYS {
        let guard = other.mutex(key(number)).wait(PATIENCE).blocking_acquire().unwrap();
        let read = other.read(format!("read:{number}")).blocking_acquire().unwrap();
        drop((guard, read));
    }
}

fn assert_at_rest(locks: &Locks) {
    let core = locks.link().core();
    eventually(PATIENCE, "nothing is left in any table", || core.is_at_rest());
}

#[test]
fn contended_keys_leave_nothing_in_any_table_in_memory() {
    let locks = Locks::in_memory();
    for _ in 0..3 {
        contend(&locks, &locks);
        assert_at_rest(&locks);
    }
}

#[test]
fn contended_keys_leave_nothing_in_any_table_beside_a_server() {
    let server = Server::start();
    let (one, other) = (Locks::open(server.url()).unwrap(), Locks::open(server.url()).unwrap());
    for _ in 0..2 {
        contend(&one, &other);
        assert_at_rest(&one);
        assert_at_rest(&other);
    }
    one.blocking_shutdown();
    other.blocking_shutdown();
    server.assert_clean();
}
