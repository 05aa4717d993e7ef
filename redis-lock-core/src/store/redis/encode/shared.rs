//! Commands for locks that several can hold, and for several keys at once.

use super::{Context, ScriptCall, asked, flag, renewal, text};
use crate::store::redis::scripts::{
    ALL_ACQUIRE, ALL_RAISE, ALL_RELEASE, ALL_RENEW, SHARED_ACQUIRE, SHARED_DOWNGRADE, SHARED_FREE,
    SHARED_RELEASE, SHARED_RENEW,
};
use crate::store::{CLAIM, Command, Verb};

pub(super) fn call(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    let names = &command.names;
    let mode = command.kind.traits().mode?;
    let limit = command.kind.limit().unwrap_or(0);
    let (limit_text, claim) = (limit.to_string(), text(Some(CLAIM)));
    let call = match &command.verb {
        Verb::Acquire(terms) => {
            let call = ScriptCall::of(&SHARED_ACQUIRE)
                .key("lock", names.main())
                .key("queue", names.queue())
                .key("waiters", names.waiters())
                .key("fence", names.fence())
                .key("tombstone", names.tombstone(&terms.token))
                .key("limits", names.limit())
                .arg("mode", mode)
                .arg("limit", limit_text);
            asked(call, terms, context).arg("claim", claim)
        }
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let limits = if limit > 0 { names.limit() } else { names.main().to_owned() };
            renew(command, token, limits)?
        }
        Verb::Release { token, keep, tombstone, .. } => {
            with_queue(ScriptCall::of(&SHARED_RELEASE), command)
                .key("limits", names.limit())
                .key("tombstone", names.tombstone(token))
                .arg("mode", mode)
                .arg("limit", limit_text)
                .arg("token", &**token)
                .arg("keep", text(keep.as_ref().map(|keep| keep.time)))
                .arg("tombstone_time", text(*tombstone))
                .arg("claim", claim)
        }
        Verb::Downgrade { token } => with_queue(ScriptCall::of(&SHARED_DOWNGRADE), command)
            .key("limits", names.limit())
            .key("tombstone", names.tombstone(token))
            .arg("token", &**token)
            .arg("claim", claim),
        _ => return None,
    };
    Some(call)
}

/// The same with the lock's key alone, for what keeps or frees a lock.
pub(super) fn alone(command: &Command) -> Option<ScriptCall> {
    let (names, mode) = (&command.names, command.kind.traits().mode?);
    match &command.verb {
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            renew(command, token, names.main().to_owned())
        }
        // A release that leaves a lease or a tombstone needs the other keys.
        Verb::Release { token, keep: None, tombstone: None, .. } => {
            let call = ScriptCall::of(&SHARED_FREE).key("lock", names.main());
            Some(call.arg("mode", mode).arg("token", &**token))
        }
        _ => None,
    }
}

fn renew(command: &Command, token: &str, limits: String) -> Option<ScriptCall> {
    let (ttl, how) = renewal(&command.verb);
    let call = ScriptCall::of(&SHARED_RENEW)
        .key("lock", command.names.main())
        .key("limits", limits)
        .arg("mode", command.kind.traits().mode?)
        .arg("limit", command.kind.limit().unwrap_or(0).to_string())
        .arg("token", token)
        .arg("ttl", text(ttl))
        .arg("how", how);
    Some(call)
}

fn with_queue(call: ScriptCall, command: &Command) -> ScriptCall {
    let names = &command.names;
    call.key("lock", names.main()).key("queue", names.queue()).key("waiters", names.waiters())
}

pub(super) fn call_all(
    command: &Command,
    ordered: bool,
    context: &Context<'_>,
) -> Option<ScriptCall> {
    let names = &command.names;
    match &command.verb {
        Verb::Acquire(_) => acquire(command, ordered, context),
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let (ttl, how) = renewal(&command.verb);
            let call = ScriptCall::of(&ALL_RENEW);
            let call = names.all().fold(call, |call, names| call.key("lock", names.main()));
            Some(call.arg("token", &**token).arg("ttl", text(ttl)).arg("how", how))
        }
        Verb::Raise { token, fence } => {
            let call = ScriptCall::of(&ALL_RAISE);
            let call = names.all().fold(call, |call, names| call.key("fence", names.fence()));
            Some(call.arg("token", &**token).arg("reached", fence.to_string()))
        }
        Verb::Release { token, keep, tombstone, .. } => {
            let call = names.all().fold(ScriptCall::of(&ALL_RELEASE), |call, names| {
                call.key("lock", names.main())
                    .key("queue", names.queue())
                    .key("waiters", names.waiters())
                    .key("tombstone", names.tombstone(token))
            });
            let call = call.arg("token", &**token);
            let call = call.arg("keep", text(keep.as_ref().map(|keep| keep.time)));
            let call = call.arg("mark", keep.as_ref().map_or("", |keep| &keep.mark));
            Some(call.arg("tombstone_time", text(*tombstone)).arg("claim", text(Some(CLAIM))))
        }
        _ => None,
    }
}

fn acquire(command: &Command, ordered: bool, context: &Context<'_>) -> Option<ScriptCall> {
    let Verb::Acquire(terms) = &command.verb else { return None };
    let call = ScriptCall::of(&ALL_ACQUIRE).key("tombstone", command.names.tombstone(&terms.token));
    let call = command.names.all().fold(call, |call, names| {
        call.key("lock", names.main())
            .key("queue", names.queue())
            .key("waiters", names.waiters())
            .key("fence", names.fence())
    });
    let call = asked(call, terms, context).arg("repair", text(terms.repair_orphan));
    Some(call.arg("claim", text(Some(CLAIM))).arg("ordered", flag(ordered)))
}
