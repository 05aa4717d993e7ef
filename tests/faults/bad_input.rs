//! Requests that can't work are refused before anything is sent, with a helpful message.

use redis_locks::{LockError, Locks};

#[track_caller]
fn refused(outcome: Result<Locks, LockError>) -> String {
    match outcome {
        Err(LockError::InvalidConfig { cause, .. }) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn urls_that_name_no_server() {
    for url in ["", "redis", "://", "redis://", "redis://host:port", "redis://:6379:1", "not a url"]
    {
        let reason = refused(Locks::open(url));
        assert!(!reason.is_empty(), "{url:?}");
    }
}

#[test]
fn schemes_that_nobody_speaks() {
    for url in ["http://localhost", "rediss+foo://localhost", "memcached://localhost"] {
        let reason = refused(Locks::open(url));
        assert!(reason.contains("use redis"), "{url:?}: {reason:?} says not what would be right");
    }
}

#[test]
fn a_bad_url_does_not_give_its_password_away() {
    let reason = refused(Locks::open("redis://app:hush-hush@host:port"));
    assert!(!reason.contains("hush-hush"), "{reason}");
}

#[test]
fn a_builder_without_any_settings() {
    let outcome = Locks::builder().open();
    assert!(matches!(outcome, Err(LockError::NotConfigured | LockError::InvalidConfig { .. })));
}

#[test]
fn keys_that_name_nothing() {
    let locks = Locks::in_memory();
    for key in [String::new(), "k".repeat(4097)] {
        let outcome = locks.mutex(&key).blocking_acquire();
        assert!(matches!(outcome, Err(LockError::InvalidKey { .. })), "{outcome:?}");
    }
}
