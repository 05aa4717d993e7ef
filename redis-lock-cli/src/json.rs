//! JSON output. The fields are documented in the help, and stay stable.

use std::time::SystemTime;

use redis_lock_core::{Done, Guard, Idle, LockKind, LockStatus, SecondCall, StoredValue};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::timestamp::rfc3339;

pub(crate) fn status(status: &LockStatus) -> Value {
    let limit = match status.kind {
        LockKind::Permit { limit, .. } => Some(limit),
        _ => None,
    };
    let holders = status.holders.iter().map(|holder| {
        json!({
            "token": holder.token.to_string(),
            "label": holder.label,
            "since": holder.since.map(rfc3339),
            "ttl_ms": holder.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            "fence": holder.fence,
            "slot": holder.slot,
            "idle": idle(holder.idle),
            "idle_since": idle_since(holder.idle).map(rfc3339),
            "second_call": second_call(holder.second_call),
        })
    });
    let waiters = status.waiters.iter().map(|waiter| {
        json!({
            "label": waiter.label,
            "since": waiter.since.map(rfc3339),
            "second_call": second_call(waiter.second_call),
        })
    });
    let nodes = status.server.nodes.iter().map(|node| {
        json!({
            "address": node.address,
            "role": node.role.to_string(),
            "version": node.version,
            "trouble": node.trouble,
            "votes": node.votes,
        })
    });
    json!({
        "key": status.key,
        "kind": word(status.kind),
        "limit": limit,
        "held": status.is_held(),
        "holders": holders.collect::<Vec<_>>(),
        "done": status.done.as_ref().map(done),
        "kept_until": status.kept_until.map(rfc3339),
        "waiters": waiters.collect::<Vec<_>>(),
        "server": {
            "version": status.server.version,
            "release": status.server.release.to_string(),
            "scripts": status.server.scripts,
            "topology": status.server.topology.to_string(),
            "epoch": status.server.epoch,
            "nodes": nodes.collect::<Vec<_>>(),
        },
    })
}

fn done(done: &Done) -> Value {
    let bytes = done.value.as_ref().map(StoredValue::bytes);
    json!({
        "by": done.by,
        "at": rfc3339(done.at),
        "until": rfc3339(done.until),
        "value_bytes": bytes,
    })
}

/// Whether the lease is idle; `None` when only the holder knows.
fn idle(idle: Idle) -> Option<bool> {
    match idle {
        Idle::No => Some(false),
        Idle::Since(_) => Some(true),
        _ => None,
    }
}

/// The option as the attribute says it; `None` without one.
fn second_call(option: SecondCall) -> Option<String> {
    (option != SecondCall::Waits).then(|| option.to_string())
}

fn idle_since(idle: Idle) -> Option<SystemTime> {
    match idle {
        Idle::Since(since) => Some(since),
        _ => None,
    }
}

/// The kind without its limit.
pub(crate) fn word(kind: LockKind) -> String {
    match kind {
        LockKind::Permit { .. } => "permit".into(),
        kind => kind.to_string(),
    }
}

pub(crate) fn acquired(guard: &Guard, waited_ms: u64) -> String {
    json!({
        "event": "acquired",
        "key": guard.key(),
        "token": guard.token().to_string(),
        "fence": guard.fence(),
        "slot": guard.slot(),
        "waited_ms": waited_ms,
    })
    .to_string()
}

pub(crate) fn lost(key: &str, reason: &str) -> String {
    json!({ "event": "lost", "key": key, "reason": reason }).to_string()
}

pub(crate) fn superseded(key: &str) -> String {
    json!({ "event": "superseded", "key": key }).to_string()
}

pub(crate) fn stopped(key: &str) -> String {
    json!({ "event": "stopped", "key": key }).to_string()
}

pub(crate) fn unconfirmed(key: &str, message: &str) -> String {
    json!({ "event": "unconfirmed", "key": key, "message": message }).to_string()
}

pub(crate) fn left_behind(key: &str, pids: &[u32]) -> String {
    json!({ "event": "left_behind", "key": key, "pids": pids }).to_string()
}

pub(crate) fn failure(failure: &Failure) -> String {
    let (error, message) = (failure.word(), failure.to_string());
    json!({ "event": "error", "error": error, "code": failure.code().0, "message": message })
        .to_string()
}
