//! Mutual exclusion and what users do with locks, from other runtimes, programs and languages too.

#[path = "../support/arena/mod.rs"]
mod arena;
#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod adopting;
mod databases;
mod examples;
mod exclusion;
mod executors;
mod force_release;
mod interop_redis_py;
mod linger;
mod linger_faults;
mod linger_others;
mod linger_server;
mod losing;
mod plain_pair;
mod recorded;
mod releases_without_scripts;
mod short_path;
mod status;
mod transactions;
mod without_scripts;

#[test]
fn child_process() {
    testbed::dispatch(&[
        ("exclusion_count", exclusion::count),
        ("linger_keep", linger_faults::keep),
        ("mixed_count", without_scripts::count),
    ]);
}
