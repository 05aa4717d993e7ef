//! Locks where there is more than one server: clusters, sentinels, replicas.

#[path = "../support/arena/mod.rs"]
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

mod addresses;
mod behind;
mod bundled;
mod clocks;
mod cluster;
mod config;
mod credentials;
mod everywhere;
mod lost_writes;
mod mayhem;
mod partitions;
mod quorum;
mod quorum_failures;
mod quorum_interop;
mod quorum_leftovers;
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

/// Verifies and releases a lock whose lease may come to its end meanwhile.
fn give_back_unless_expired(guard: redis_locks::Guard) {
    let end = std::time::Instant::now() + guard.remaining();
    if !is_held(&guard) {
        return;
    }
    let outcome = guard.blocking_verify().and_then(|()| guard.blocking_release());
    if let Err(error) = outcome {
        let is_over = std::time::Instant::now() >= end;
        assert!(error.is_lost() && is_over, "lost before its end: {error}");
    }
}
