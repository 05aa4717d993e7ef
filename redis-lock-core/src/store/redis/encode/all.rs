//! Commands for several mutexes that are one lock: `all.lua` and the other `all_*.lua`.

use super::{Context, ScriptCall, asked, flag, renewal, text};
use crate::store::redis::scripts::{ALL_ACQUIRE, ALL_RAISE, ALL_RELEASE, ALL_RENEW};
use crate::store::{CLAIM, Command, Verb};

pub(super) fn call(command: &Command, ordered: bool, context: &Context<'_>) -> Option<ScriptCall> {
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
