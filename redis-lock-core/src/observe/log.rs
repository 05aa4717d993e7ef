//! Messages for operators. Without the `tracing` feature these functions do nothing.
//!
//! Most are found on the engine's thread, or under its locks. A subscriber may block, so it gets them
//! on the thread for reports.

use std::collections::BTreeSet;
use std::time::Duration;

use super::OutageLine;
use crate::LockError;
use crate::domain::demand::Demand;
use crate::domain::error::{held_by, in_words};
use crate::sync::NonPoisonMutex;

/// Emits an event on the thread for reports, if a subscriber may listen to its level. The first values
/// in brackets are borrowed, so the thread gets copies.
macro_rules! say_aside {
    ($level:ident, [$($text:ident),*] [$($value:ident),*], $($what:tt)+) => {{
        #[cfg(feature = "tracing")]
        if is_heard(tracing::Level::$level) {
            $(let $text = $text.to_owned();)*
            super::later(move || tracing::event!(target: "redis_locks", tracing::Level::$level, $($what)+));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = ($(&$text,)* $(&$value,)*);
    }};
}

/// The most keys for which a warning is remembered.
const MOST_REMEMBERED: usize = 1000;

/// Whether a subscriber may listen to messages of this level. While there is no subscriber at all,
/// `tracing` may hand warnings to the `log` crate.
#[cfg(feature = "tracing")]
fn is_heard(level: tracing::Level) -> bool {
    use tracing::level_filters::LevelFilter;
    let most = LevelFilter::current();
    most >= level || most == LevelFilter::OFF && level <= tracing::Level::WARN
}

/// A connection was made. Only the first of several that find the same is worth more than a line
/// for debugging.
pub(crate) fn connected(version: &str, warnings: &[String], is_first: bool) {
    if !is_first {
        say_aside!(DEBUG, [version] [], version, "connected to the lock server again");
        return;
    }
    say_aside!(INFO, [version] [], version, "connected to the lock server");
    for warning in warnings {
        say_aside!(WARN, [version, warning] [], version, "{warning}");
    }
}

pub(crate) fn scripting_changed(allowed: bool) {
    #[cfg(feature = "tracing")]
    if allowed {
        say_aside!(INFO, [] [], "the lock server allows scripts again, so all kinds of lock work");
    } else {
        say_aside!(WARN, [] [], "the lock server denies scripts: mutexes continue with transactions, and other kinds of lock don't work");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = allowed;
}

/// A server began to fail, still fails, or works again.
pub(crate) fn outage(line: OutageLine) {
    #[cfg(feature = "tracing")]
    super::later(move || {
        let OutageLine { server, why, lasted, is_over } = line;
        let (server, time) = (server.as_deref(), in_words(lasted));
        match (is_over, lasted) {
            (true, _) => {
                tracing::info!(target: "redis_locks", server, ?lasted, "the lock server works again after {time}; it had failed: {why}");
            }
            (false, Duration::ZERO) => {
                tracing::warn!(target: "redis_locks", server, "{why}");
            }
            (false, _) => {
                tracing::warn!(target: "redis_locks", server, ?lasted, "{why}; for {time} so far");
            }
        }
    });
    #[cfg(not(feature = "tracing"))]
    let _ = line;
}

/// To be called where a subscriber may block.
pub(crate) fn long_wait(busy: &LockError, holding: Option<&str>) {
    let LockError::Busy { key, waited, holder } = busy else { return };
    let (waited, held_by) = (in_words(*waited), held_by(holder.as_deref()));
    let holding = holding.map(|keys| format!(", while holding {keys}")).unwrap_or_default();
    say!(
        warn,
        [key, waited, held_by, holding],
        key,
        "a call has waited for {waited} for `{key}`{held_by}{holding}"
    );
}

/// A node of a quorum can't be reached, for this reason, or can be again.
pub(crate) fn node(node: &str, why: Option<&str>) {
    match why {
        Some(why) => {
            say_aside!(WARN, [node, why] [], node, "a node of the quorum can't be reached, and does not vote: {why}");
        }
        None => {
            say_aside!(INFO, [node] [], node, "a node of the quorum can be reached again");
        }
    }
}

/// The provider of credentials does not answer, for this reason, or does again.
pub(crate) fn credentials(why: Option<&str>) {
    match why {
        Some(why) => {
            say_aside!(WARN, [why] [], "the provider of credentials {why}; connections keep the last ones as long as the server accepts them");
        }
        None => {
            say_aside!(INFO, [] [], "the provider of credentials answers again");
        }
    }
}

/// A node of a quorum lets leases end before their time.
pub(crate) fn fast_node(node: &str) {
    say_aside!(
        WARN,
        [node] [],
        node,
        "the clock of a node of the quorum runs fast or jumped ahead, so its leases end early: the node does not vote for `rejoin`"
    );
}

/// Another client of the quorum has a longer `rejoin`.
pub(crate) fn longer_rejoin(own: Duration, found: Duration) {
    let (own, found) = (in_words(own), in_words(found));
    say_aside!(
        WARN,
        [own, found] [],
        "`rejoin` is {own} here, and {found} in another client of the quorum: this process uses {found} too; give all clients the same value"
    );
}

/// Warns that all known nodes are gone and that nodes of another cluster have their addresses.
pub(crate) fn another_cluster() {
    say_aside!(
        WARN,
        [] [],
        "the nodes at the known addresses belong to another cluster now; locks of the previous one are lost"
    );
}

pub(crate) fn bug(what: &'static str) {
    say_aside!(ERROR, [what] [], "{what}");
}

pub(crate) fn repaired(key: &str, value: &str, grace: Option<Duration>) {
    say_aside!(
        WARN,
        [key, value][grace],
        key,
        value,
        ?grace,
        "a value without a ttl blocked the lock and was given one"
    );
}

/// Says, once for each key and pair of limits, that a holder of a permit asked for it with another limit.
pub(crate) fn limits_differ(key: &str, limit: u32, other: u32) {
    static REPORTED: NonPoisonMutex<BTreeSet<(Box<str>, u32, u32)>> =
        NonPoisonMutex::new(BTreeSet::new());
    let mut reported = REPORTED.lock();
    if reported.len() >= MOST_REMEMBERED {
        reported.clear();
    }
    if !reported.insert((key.into(), limit, other)) {
        return;
    }
    say_aside!(
        WARN,
        [key] [limit, other],
        key,
        limit,
        other,
        "callers disagree on the number of permits; the smaller counts"
    );
}

pub(crate) fn not_listening(why: &str) {
    say_aside!(WARN, [why] [], "no messages arrive from the server, so waiters ask at intervals: {why}");
}

/// To be called on the thread of the one who acquires.
pub(crate) fn never_busy(function: &str) {
    say!(
        warn,
        [function],
        "the `on_busy` of `{function}` is never used, because its calls wait for the lock without a \
         limit; add `wait = \"none\"` or a limit such as `wait = \"5s\"`"
    );
}

/// To be called on the thread of the one who acquires.
pub(crate) fn made_for_one_call(function: &str) {
    say!(
        warn,
        [function],
        "the `via` of `{function}` makes a `Locks` for each call, so locks in memory exclude nothing \
         and others connect each time; make one at start-up, and clone it"
    );
}

/// To be called on the thread of the one who holds the lock.
pub(crate) fn not_completed(demand: &Demand, error: &LockError) {
    let (key, lock) = (demand.key(), demand.title.shown());
    say!(
        warn,
        [key, lock, error],
        key,
        lock,
        "the mark of `once` is not confirmed, so the work may run again: {error}"
    );
}

/// To be called on the thread of the one who holds the lock.
#[cfg(feature = "serde")]
pub(super) fn not_stored(demand: &Demand, why: crate::NoValue) {
    let (key, lock) = (demand.key(), demand.title.shown());
    say!(warn, [key, lock, why], key, lock, "other calls do not get the value of this one: {why}");
}

/// A blocking call has waited for a second. `own` is the key that its thread already holds, if any.
/// To be called on the thread of the one who acquires.
pub(crate) fn stalled(demand: &Demand, own: Option<&str>) {
    let (key, lock, function) = (demand.key(), demand.title.shown(), demand.title.function);
    let who = if function.is_empty() { "a blocking acquisition" } else { function };
    let what = match own {
        Some(own) => {
            format!("while a task of its own thread holds `{own}`, and may never give it back")
        }
        None => "and blocks the only thread of its runtime, so no other task runs".to_owned(),
    };
    say!(
        warn,
        [key, lock, who, what],
        key,
        lock,
        "{who} waits for a lock {what}; make it async, or use `spawn_blocking`"
    );
}
