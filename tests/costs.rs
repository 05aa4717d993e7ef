//! What calls cost: allocations of a key and of a pair, and the system calls of many pairs. How often threads
//! wait for each other (`futex`) depends on what else the machine does, so no test holds it.

use std::process::Command;

use allocation_counter::measure;
use redis_locks::__private_0_1::{render, segment};
use redis_locks::{LockError, LockKey, Locks, redis_lock};
use testbed::Server;
use tokio::runtime::Builder;

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

/// Acquires and releases a lock on a server, on a runtime with one thread that also reads the answers.
#[test]
fn a_pair_allocates_little() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(Locks::builder().url(server.url()).connect()).unwrap();
    let key = LockKey::from_static("pair");
    let pair = || {
        runtime.block_on(async {
            locks.mutex(&key).acquire().await.unwrap().release().await.unwrap();
        });
    };
    (0..100).for_each(|_| pair());
    let count = usually(&pair);
    println!("a pair: {count} allocations");
    assert!(count <= 20, "{count}");
}

const TASKS: u64 = 64;

/// Of each task.
const PAIRS: u64 = 200;

/// What [`system_calls_of_many_pairs_are_few`] watches.
#[test]
#[ignore = "part of another test"]
fn many_pairs() {
    let server = std::env::var("SERVER_OF_PAIRS").unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::builder().url(server).connect().await.unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let key = LockKey::from(format!("pairs:{task}"));
                    for _ in 0..PAIRS {
                        locks.mutex(&key).acquire().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn system_calls_of_many_pairs_are_few() {
    if !Command::new("strace").arg("-V").output().is_ok_and(|it| it.status.success()) {
        testbed::skip!("strace is not installed");
    }
    let server = Server::start();
    let mut watched = Command::new("strace");
    watched.args(["-f", "-c", "-U", "calls,name"]).arg(std::env::current_exe().unwrap());
    watched.args(["--ignored", "--exact", "many_pairs"]).env("SERVER_OF_PAIRS", server.url());
    let output = watched.output().unwrap();
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}");
    let of = |name: &str| -> u64 {
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.last() == Some(&name)).map(|row| row[0].parse::<u64>().unwrap()).sum()
    };
    let pairs = TASKS * PAIRS;
    println!("{pairs} pairs: {table}");
    // Fences and tokens come from random bytes that are fetched for many calls at once.
    assert!(of("getrandom") <= pairs / 32 + 100, "{table}");
    // Commands of many tasks share a packet.
    assert!(of("sendto") <= pairs / 4, "{table}");
}
