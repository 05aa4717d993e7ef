//! Messages for operators. Without the `tracing` feature these functions do nothing.

use std::time::Duration;

pub(crate) fn connected(version: &str, warnings: &[String]) {
    #[cfg(feature = "tracing")]
    {
        tracing::debug!(target: "redis_locks", version, "connected to the lock server");
        for warning in warnings {
            tracing::warn!(target: "redis_locks", version, "{warning}");
        }
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (version, warnings);
}

pub(crate) fn scripting_changed(allowed: bool) {
    #[cfg(feature = "tracing")]
    if allowed {
        tracing::info!(target: "redis_locks", "the lock server allows scripts again, so all kinds of lock work");
    } else {
        tracing::warn!(target: "redis_locks", "the lock server denies scripts: mutexes go on by transactions, other kinds of lock don't work");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = allowed;
}

pub(crate) fn unreachable(why: &str, pause: Duration) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redis_locks", ?pause, "{why}; trying again");
    #[cfg(not(feature = "tracing"))]
    let _ = (why, pause);
}

/// Warns that all known nodes are gone and that nodes of another cluster have their addresses.
pub(crate) fn another_cluster() {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "redis_locks",
        "the nodes at the known addresses are another cluster by now; locks of the former are lost"
    );
}

pub(crate) fn silent(waited: Duration) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redis_locks", ?waited, "the lock server fell silent; connecting again");
    #[cfg(not(feature = "tracing"))]
    let _ = waited;
}

pub(crate) fn repaired(key: &str, value: &str, grace: Option<Duration>) {
    #[cfg(feature = "tracing")]
    tracing::warn!(key, value, ?grace, "a value without a ttl blocked the lock and was given one");
    #[cfg(not(feature = "tracing"))]
    let _ = (key, value, grace);
}

pub(crate) fn limits_differ(key: &str, limit: u32, other: u32) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "redis_locks",
        key,
        limit,
        other,
        "callers disagree on the number of permits; the smaller counts"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (key, limit, other);
}

pub(crate) fn not_listening(why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redis_locks", "waiters look for their locks at intervals, since they can't be told: {why}");
    #[cfg(not(feature = "tracing"))]
    let _ = why;
}

pub(crate) fn stalled(key: &str, label: Option<&str>) {
    let who = label.unwrap_or("a blocking acquisition");
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "redis_locks",
        key,
        "{who} waits for a lock and blocks the only thread of its runtime, so no other task goes \
         on; make it async, or call it by `spawn_blocking`"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (key, who);
}
