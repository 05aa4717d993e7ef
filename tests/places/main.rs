//! Locks where there is more than one server: clusters, sentinels, replicas.

#[path = "../arena/mod.rs"]
mod arena;

#[path = "../../examples/owned_mutex.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod owned_mutex;
#[path = "../../examples/plain_lock.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod plain_lock;

#[path = "../kinds/together.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod together;

mod behind;
mod bundled;
mod clocks;
mod cluster;
mod config;
mod everywhere;
mod lost_writes;
mod mayhem;
mod partitions;
mod released;
mod replicas;
mod rights;
mod sentinel;
mod several_failures;
#[cfg(feature = "rustls")]
mod tls;
mod without_scripts;

/// Whether a guard still has its lock, as far as it knows.
fn is_held(guard: &redis_locks::Guard) -> bool {
    !matches!(guard.state(), redis_locks::LockState::Lost)
}
