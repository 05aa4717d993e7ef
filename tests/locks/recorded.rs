//! The record of calls that a test can look at.

use redis_locks::{LockError, LockKind, Locks, redis_lock};

#[redis_lock(key = "order:{id}", wait = "none")]
fn charge(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[test]
fn calls_are_recorded_in_the_order_in_which_they_ended() {
    let locks = Locks::in_memory().recorded();
    let guard = locks.mutex("order:7").blocking_acquire().unwrap();
    let refused = locks.blocking_scope(|| charge(7)).unwrap_err();
    let _reader = locks.clone().read("catalog").blocking_acquire().unwrap();
    let token = guard.token().clone();
    guard.blocking_release().unwrap();
    locks.blocking_scope(|| charge(7)).unwrap();

    let records = locks.records();
    let keys: Vec<_> = records.iter().map(|record| (&*record.key, record.is_acquired())).collect();
    let order = ("order:7", true);
    assert_eq!(keys, [order, ("order:7", false), ("catalog", true), order]);
    let functions: Vec<_> = records.iter().map(|record| !record.function.is_empty()).collect();
    assert_eq!(functions, [false, true, false, true]);
    assert_eq!(records[0].outcome, Some(Ok(token)));
    assert_eq!(records[1].outcome, Some(Err(refused)));
    assert_eq!(records[2].kind, LockKind::Read);
}

#[test]
fn a_call_that_is_dropped_has_no_outcome() {
    let locks = Locks::in_memory().recorded();
    let _guard = locks.mutex("k").blocking_acquire().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let waiting = locks.mutex("k").acquire();
        let limit = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(limit, waiting).await.is_err());
    });
    assert_eq!(locks.records()[1].outcome, None);
}

#[test]
fn nothing_is_recorded_unless_that_was_asked_for() {
    let locks = Locks::in_memory();
    locks.mutex("k").blocking_acquire().unwrap().blocking_release().unwrap();
    assert_eq!(locks.records(), []);
}
