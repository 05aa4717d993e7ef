//! Names, values and durations at the edges of what is allowed, and past them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, Scripting};
use testbed::{Monitor, Server, holds_for};

use crate::support::*;

fn says_nothing(monitor: &Monitor) {
    holds_for(ms(100), "nothing is sent", || monitor.count(KEY) == 0 && monitor.count("EVAL") == 0);
}

#[tokio::test]
async fn k1_durations_that_make_no_sense_are_refused_before_anything_is_sent() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let monitor = server.monitor();
    let too_long = Duration::from_millis(i64::MAX.unsigned_abs()).saturating_add(ms(1));
    for ttl in [Duration::ZERO, Duration::from_nanos(1), ms(99), too_long, Duration::MAX] {
        let outcome = locks.mutex(KEY).ttl(ttl).acquire().await;
        assert!(matches!(outcome, Err(LockError::InvalidConfig { .. })), "{ttl:?}: {outcome:?}");
        let built = Locks::builder().url(server.url()).ttl(ttl).open();
        assert!(matches!(built, Err(LockError::InvalidConfig { .. })), "{ttl:?}: {built:?}");
    }
    says_nothing(&monitor);
    server.assert_clean();
}

#[tokio::test]
async fn k1_the_longest_lease_has_an_end_with_scripts_and_without() {
    let server = Server::start();
    let most = Duration::from_secs(100 * 366 * 24 * 60 * 60);
    for scripting in [Scripting::Auto, Scripting::Never] {
        let builder = || Locks::builder().url(server.url()).scripting(scripting);
        let (locks, other) = (builder().open().unwrap(), builder().open().unwrap());
        for too_long in [most + ms(1), most * 10] {
            let outcome =
                locks.mutex(KEY).ttl(too_long).max_hold(too_long).fenced().acquire().await;
            let seen = (server.pttl(WIRE), other.mutex(KEY).no_wait().acquire().await.err());
            assert!(
                matches!(outcome, Err(LockError::InvalidConfig { .. })),
                "{seen:?}: {outcome:?}"
            );
        }
        let guard = locks.mutex(KEY).ttl(most).max_hold(most).acquire().await.unwrap();
        assert!(server.pttl(WIRE).is_some_and(|left| left > 0));
        let busy = other.mutex(KEY).no_wait().acquire().await;
        assert!(busy.as_ref().is_err_and(LockError::is_busy), "{busy:?}");
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

#[tokio::test]
async fn k1_a_fraction_of_a_millisecond_is_rounded_up() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let monitor = server.monitor();
    let ttl = Duration::from_micros(10_000_001);
    let guard = locks.mutex(KEY).ttl(ttl).acquire().await.unwrap();
    assert!(server.pttl(WIRE).is_some_and(|left| (9000..=10_001).contains(&left)));
    guard.release().await.unwrap();
    testbed::eventually(PATIENCE, "the ttl in ms is sent", || monitor.count("\"10001\"") > 0);
    server.assert_clean();
}

#[tokio::test]
async fn k1_a_wait_beyond_all_measure_is_refused_before_anything_is_sent() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let monitor = server.monitor();
    for wait in [Duration::from_millis(u64::MAX), Duration::from_secs(u64::MAX), Duration::MAX] {
        let outcome = job(&locks).wait(wait).acquire().await;
        assert!(matches!(outcome, Err(LockError::InvalidConfig { .. })), "{wait:?}: {outcome:?}");
    }
    says_nothing(&monitor);
    // A year is long, but accepted.
    let guard = job(&locks).wait(Duration::from_secs(31_536_000)).acquire().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn k2_a_value_that_is_no_lock_is_reported_and_not_waited_for() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    server.run::<()>("RPUSH lock:job data");
    server.run::<()>("SET lock:eternal data");
    for (key, cause) in [(KEY, "list of another program"), ("eternal", "ttl")] {
        let start = Instant::now();
        let outcome = locks.mutex(key).wait_forever().acquire().await;
        assert!(start.elapsed() < HANGS, "{:?}", start.elapsed());
        assert_backend(outcome, cause);
        assert_backend(locks.mutex(key).try_acquire().await, cause);
    }
    assert_eq!(server.run::<String>("LINDEX lock:job 0"), "data");
    assert_eq!(server.pttl("lock:eternal"), Some(-1), "it was not touched");
    server.run::<()>("DEL lock:job lock:eternal");
    server.assert_clean();
}

#[tokio::test]
async fn k2_a_foreign_value_with_a_ttl_simply_holds() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    server.run::<()>("SET lock:job somebody PX 1000");
    assert!(locks.mutex(KEY).try_acquire().await.unwrap().is_none());
    match locks.mutex(KEY).wait(ms(100)).acquire().await {
        Err(LockError::Busy { holder: Some(holder), .. }) => {
            assert_eq!(holder.token.to_string(), "somebody");
        }
        other => panic!("{other:?}"),
    }
    let start = Instant::now();
    let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
    assert!(start.elapsed() < ms(1000) + GRACE, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn k3_any_text_can_be_a_key_and_two_keys_never_meet() {
    let server = Server::start();
    // A busy machine may take longer for one of these commands than the usual limit of these tests.
    let locks = connect_with(&server.url(), Duration::from_secs(10)).await;
    let longest = "k".repeat(4096);
    let keys = [
        " ",
        "a b",
        "a\r\nb",
        "ä",
        "🔒",
        "a:b",
        "a:b:c",
        "{a}",
        "{a}b",
        "}{",
        "{}",
        "{",
        "}",
        "a'b\"c\\d",
        "$(x)",
        "*",
        "?",
        "%s",
        "~q",
        ":~q",
        &longest,
    ];
    let mut guards = Vec::new();
    for key in keys {
        let guard = locks.mutex(key).ttl(LONG).fenced().no_wait().acquire().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{key:?}: {error}")));
    }
    assert_eq!(guards.iter().map(|guard| guard.key()).collect::<Vec<_>>(), keys);
    for (guard, key) in guards.into_iter().zip(keys) {
        let value: Option<String> =
            server.query(redis::cmd("GET").arg(format!("lock:{key}"))).unwrap();
        assert_eq!(value, Some(guard.token().to_string()), "{key:?}");
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

#[tokio::test]
async fn k3_no_name_and_names_without_end_are_refused() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let monitor = server.monitor();
    for key in [String::new(), "k".repeat(4097), KEY.repeat(1_000_000)] {
        let outcome = locks.mutex(&key).acquire().await;
        assert!(matches!(outcome, Err(LockError::InvalidKey { .. })), "{outcome:?}");
        let text = outcome.unwrap_err().to_string();
        assert!(text.len() < 500, "an error of {} bytes", text.len());
    }
    says_nothing(&monitor);
    server.assert_clean();
}

#[tokio::test]
async fn k4_tokens_are_long_and_random() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let mut seen = HashSet::new();
    let mut ones = [0_u32; 128];
    const COUNT: u32 = 1000;
    for number in 0..COUNT {
        let guard = locks.mutex(format!("{KEY}{number}")).ttl(LONG).acquire().await.unwrap();
        let token = guard.token().to_string();
        let random = token
            .split('.')
            .find_map(|part| (part.len() == 32).then(|| u128::from_str_radix(part, 16).ok())?)
            .unwrap_or_else(|| panic!("no 128 random bits in {token}"));
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += u32::from(random >> bit & 1 == 1);
        }
        assert!(seen.insert(random), "{token} twice");
        guard.release().await.unwrap();
    }
    // Six bits of a version 4 UUID are fixed. A fair one is set in 500 of 1000, and in fewer than
    // 400 or more than 600 with a probability below 1e-9.
    let fixed = ones.iter().filter(|ones| !(400..=600).contains(*ones)).count();
    assert!(fixed <= 6, "{fixed} bits are not random");
    server.assert_clean();
}

#[tokio::test]
async fn k6_databases_and_namespaces_are_worlds_of_their_own_and_can_be_seen() {
    let server = Server::start();
    let (plain, other_db) = (server.url(), format!("{}/1", server.url()));
    let namespaced = Locks::builder().url(&*plain).namespace("shop").open().unwrap();
    let bare = Locks::builder().url(&*plain).namespace("").open().unwrap();
    let managers = [open(&plain), open(&other_db), namespaced, bare];
    let mut guards = Vec::new();
    for locks in &managers {
        guards.push(
            job(locks)
                .try_acquire()
                .await
                .unwrap()
                .expect("no other client uses this database and namespace"),
        );
    }
    assert_eq!(server.keys(), [KEY, WIRE, "shop:job"]);
    let seen: HashSet<String> = managers.iter().map(|locks| format!("{locks:?}")).collect();
    assert_eq!(seen.len(), managers.len(), "they look alike: {seen:?}");
    // The same database and namespace, from another manager.
    let same = Locks::builder().url(&*plain).namespace("shop").open().unwrap();
    assert!(job(&same).try_acquire().await.unwrap().is_none());
    for guard in guards {
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

#[tokio::test]
async fn k6_passwords_are_not_shown() {
    let server = Server::start();
    let url = server.url().replace("redis://", "redis://app:hush-hush@");
    let locks = Locks::builder().url(&*url).command_timeout(COMMAND).open().unwrap();
    let error = job(&locks).wait(ms(100)).acquire().await.unwrap_err();
    for text in [format!("{locks:?}"), format!("{error:?}"), full_text(&error)] {
        assert!(!text.contains("hush-hush"), "{text}");
    }
}
