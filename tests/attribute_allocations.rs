//! How many allocations a key costs: none when it is constant, and two when it is rendered.

use allocation_counter::measure;
use redis_locks::__private_0_1::{render, segment};
use redis_locks::{LockError, LockKey, Locks, redis_lock};

fn allocations(what: impl FnOnce()) -> u64 {
    measure(what).count_total
}

/// How many a call usually makes. On a busy machine some make fewer, because another thread has done a part of
/// their work before, and some make more.
fn usually(call: &dyn Fn()) -> u64 {
    let mut counts: Vec<_> = (0..101).map(|_| allocations(call)).collect();
    counts.sort_unstable();
    counts[50]
}

#[test]
fn a_constant_key_allocates_nothing() {
    assert_eq!(allocations(|| drop(LockKey::from_static("global"))), 0);
}

#[test]
fn a_rendered_key_allocates_its_text_and_the_key() {
    let (id, name) = (u64::MAX, "a name: long, and with much to escape in it / or so");
    let short = || drop(render(format_args!("order:{}", segment(&id))).unwrap());
    assert_eq!(allocations(short), 2);
    let long = "x".repeat(900);
    let rendered = || {
        let key = render(format_args!("{}:{}:{:08}", segment(name), segment(&long), segment(&7)));
        assert!(key.is_ok());
    };
    // A long text grows as it is written.
    assert!(allocations(rendered) <= 8);
}

#[redis_lock(key = "constant", via = locks)]
fn constant(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "rendered:{id}", via = locks)]
fn rendered(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

/// Counts a later call of each, because the first one also creates tables and threads.
#[test]
fn the_attribute_allocates_what_the_direct_call_does_and_the_key() {
    let locks = Locks::in_memory();
    let direct = || {
        let key = LockKey::from_static("constant");
        locks.mutex(key).blocking_run(|_| ()).unwrap();
    };
    let annotated = || constant(&locks).unwrap();
    let with_key = || rendered(&locks, 1).unwrap();
    direct();
    annotated();
    with_key();
    let (direct, annotated, with_key) = (usually(&direct), usually(&annotated), usually(&with_key));
    println!("direct {direct}, constant key {annotated}, rendered key {with_key}");
    // An annotated function puts its own name into the holder's label, which takes a string, and has
    // a scope.
    assert!(annotated <= direct + 2, "{annotated} {direct}");
    // The text of the key, and the key.
    assert!(with_key <= annotated + 2, "{with_key} {annotated}");
}

#[test]
fn a_name_for_the_numbers_allocates_nothing() {
    let locks = Locks::in_memory();
    let unnamed = || {
        let key = LockKey::from_static("constant");
        locks.mutex(key).blocking_run(|_| ()).unwrap();
    };
    let named = || {
        let key = LockKey::from_static("constant");
        locks.mutex(key).metric_name("a name").blocking_run(|_| ()).unwrap();
    };
    let (unnamed, named) = (usually(&unnamed), usually(&named));
    assert!(named <= unnamed, "{named} {unnamed}");
}
