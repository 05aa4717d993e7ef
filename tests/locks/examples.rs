//! The examples do what they say, in memory and on a server.

#![allow(dead_code, reason = "each example has a main of its own")]

#[path = "../../examples/acquire_release_pair.rs"]
mod acquire_release_pair;
#[path = "../../examples/automatic_release.rs"]
mod automatic_release;
#[path = "../../examples/coalesce.rs"]
mod coalesce;
#[path = "../../examples/fencing.rs"]
mod fencing;
#[path = "../../examples/leadership.rs"]
mod leadership;
#[path = "../../examples/newest.rs"]
mod newest;
#[path = "../../examples/owned_mutex.rs"]
mod owned_mutex;
#[path = "../../examples/plain_lock.rs"]
mod plain_lock;
#[path = "../../examples/read_write.rs"]
mod read_write;
#[path = "../../examples/request_to_worker.rs"]
mod request_to_worker;
#[path = "../../examples/scoped_mutex.rs"]
mod scoped_mutex;
#[cfg(feature = "serde")]
#[path = "../../examples/share.rs"]
mod share;
#[path = "../../examples/slot.rs"]
mod slot;
#[path = "../../examples/wait_limit_and_timeout.rs"]
mod wait_limit_and_timeout;

use std::collections::BTreeSet;
use std::time::Duration;

use redis_locks::{LockState, Locks, LossReason, Scripting};

use crate::arena::Arena;

/// Runs an example on every arbiter.
fn on_each(example: impl Fn(&Locks)) {
    for arena in Arena::each() {
        example(&arena.one);
        arena.one.blocking_shutdown();
        arena.assert_clean();
    }
}

/// Runs an example of mutexes on every arbiter, and by transactions.
fn on_each_and_by_transactions(example: impl Fn(&Locks)) {
    let arena = Arena::without_scripts();
    example(&arena.one);
    arena.one.blocking_shutdown();
    arena.assert_clean();
    on_each(example);
}

#[test]
fn a_plain_lock_without_expiry() {
    on_each_and_by_transactions(|locks| {
        let log = plain_lock::demo(locks).unwrap();
        assert_eq!(log.len(), 4, "{log:?}");
    });
}

#[test]
fn automatic_release_in_seconds_or_milliseconds() {
    on_each(|locks| {
        let ended = automatic_release::demo(locks).unwrap();
        assert_eq!(ended[0].0, Duration::from_secs(1));
        assert!(ended.iter().all(|(_, state)| *state == LockState::Lost), "{ended:?}");
    });
}

#[test]
fn a_scoped_mutex_waits_and_repairs_a_missing_ttl() {
    on_each_and_by_transactions(|locks| assert_eq!(scoped_mutex::demo(locks).unwrap(), 15));
    for arena in [Arena::server(), Arena::without_scripts()] {
        let server = arena.server.as_ref().unwrap();
        server.run::<()>("SET lock:example:balance orphan");
        assert_eq!(scoped_mutex::demo(&arena.one).unwrap(), 15);
        arena.assert_clean();
    }
}

#[test]
fn an_owned_mutex_says_whether_it_still_holds() {
    on_each(|locks| {
        let log = owned_mutex::demo(locks).unwrap();
        assert_eq!(
            log,
            [
                "elected: Held, and the server agrees: true",
                "a second one: no",
                "after a forced release the server says: false",
                "the next: Held",
            ]
        );
    });
}

#[test]
fn a_longest_reading_time() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    on_each(|locks| {
        let reason = runtime.block_on(read_write::demo(locks)).unwrap();
        assert_eq!(reason, LossReason::HoldLimit);
    });
}

#[test]
fn a_wait_limit_and_a_lock_timeout() {
    on_each_and_by_transactions(|locks| {
        let log = wait_limit_and_timeout::demo(locks).unwrap();
        assert_eq!(log[1], "the second waited as long as it was willing to");
        assert_eq!(log[3], "the first can't release what is not its own");
        assert_eq!(log.len(), 5, "{log:?}");
    });
}

#[test]
fn whoever_knows_the_name_releases_by_transactions_and_by_scripts() {
    let server = testbed::Server::start();
    for scripting in [Scripting::Never, Scripting::Auto] {
        let builder = || Locks::builder().url(server.url()).scripting(scripting);
        let pair = || acquire_release_pair::Pair::new(builder()).unwrap();
        let outcomes = acquire_release_pair::demo(&pair(), &pair()).unwrap();
        let absent = scripting == Scripting::Never;
        assert_eq!(outcomes, [true, false, false, true, absent], "{scripting:?}");
        server.assert_clean();
    }
}

#[test]
fn a_request_takes_a_lock_and_a_worker_ends_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in Arena::each().into_iter().chain([Arena::without_scripts()]) {
        let log = runtime.block_on(request_to_worker::demo(&arena.one, &arena.other)).unwrap();
        let expected = [
            "the request is answered",
            "a second one is turned away",
            "the worker is done",
            "the same job is not done twice",
        ];
        assert_eq!(log, expected, "{}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn a_stale_writer_is_refused() {
    on_each(|locks| assert_eq!(fencing::demo(locks).unwrap(), (1, 0, 120)));
}

#[test]
fn each_of_ten_jobs_runs_on_one_of_four_devices() {
    on_each(|locks| {
        let ran = slot::demo(locks).unwrap();
        let jobs: BTreeSet<_> = ran.iter().map(|(job, _)| *job).collect();
        assert!(ran.len() == 10 && jobs.into_iter().eq(0..10), "{ran:?}");
        assert!(ran.iter().all(|(_, device)| *device < 4), "{ran:?}");
    });
}

#[test]
fn a_leader_that_is_deposed_leads_again_after_the_next() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    on_each(|locks| {
        let led = runtime.block_on(leadership::demo(locks)).unwrap();
        assert_eq!(led, ["ada", "grace", "ada"]);
    });
}

#[test]
fn of_twenty_changes_the_last_run_has_read_all() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    on_each_and_by_transactions(|locks| {
        let (ran, read) = runtime.block_on(coalesce::demo(locks)).unwrap();
        assert_eq!(read, 20, "after {ran} runs");
    });
}

#[test]
fn of_five_previews_the_last_one_is_drawn() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    on_each_and_by_transactions(|locks| {
        let drawn = runtime.block_on(newest::demo(locks)).unwrap();
        assert_eq!(drawn.last().map(String::as_str), Some("<p>hello</p>"));
    });
}

#[cfg(feature = "serde")]
#[test]
fn a_hundred_calls_at_once_get_what_few_have_asked_for() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    on_each_and_by_transactions(|locks| {
        let (rates, asked) = runtime.block_on(share::demo(locks)).unwrap();
        assert_eq!(rates.len(), 100);
        assert!(rates.iter().all(|rate| (108..108 + asked).contains(rate)), "{rates:?}");
    });
}
