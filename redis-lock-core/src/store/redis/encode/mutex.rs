//! Commands for a mutex, and those that look at any lock or end it by force.

use super::{Context, ScriptCall, asked, renewal, text};
use crate::store::redis::scripts::{ACQUIRE, FORCE, LOOK, RELEASE, RENEW};
use crate::store::{CLAIM, Command, MOST_SHOWN, Verb};

pub(super) fn call(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    match &command.verb {
        Verb::Take { .. }
        | Verb::Downgrade { .. }
        | Verb::Raise { .. }
        | Verb::Why { .. }
        | Verb::Scan { .. }
        | Verb::InUse { .. }
        | Verb::Ping
        | Verb::Probe => None,
        Verb::Acquire(_) => acquire(command, context),
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let (ttl, how) = renewal(&command.verb);
            let mut call = ScriptCall::of(&RENEW).key("lock", command.names.main());
            if planted!(TwoKeyRenew) {
                call = call.key("tombstone", command.names.tombstone(token));
            }
            Some(call.arg("token", &**token).arg("ttl", text(ttl)).arg("how", how))
        }
        Verb::Release { .. } => release(command),
        Verb::Look => Some(look(command)),
        Verb::Force { .. } => force(command, context),
    }
}

fn acquire(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    let Verb::Acquire(terms) = &command.verb else { return None };
    let names = &command.names;
    let call = ScriptCall::of(&ACQUIRE)
        .key("lock", names.main())
        .key("queue", names.queue())
        .key("waiters", names.waiters())
        .key("fence", names.fence())
        .key("tombstone", names.tombstone(&terms.token));
    let call = asked(call, terms, context).arg("repair", text(terms.repair_orphan));
    Some(call.arg("claim", text(Some(CLAIM))).arg("ask", text(terms.ask)))
}

fn release(command: &Command) -> Option<ScriptCall> {
    let Verb::Release { token, keep, tombstone, .. } = &command.verb else { return None };
    let names = &command.names;
    let call = ScriptCall::of(&RELEASE)
        .key("lock", names.main())
        .key("queue", names.queue())
        .key("waiters", names.waiters())
        .key("tombstone", names.tombstone(token))
        .arg("token", &**token)
        .arg("keep", text(keep.as_ref().map(|keep| keep.time)))
        .arg("mark", keep.as_ref().map_or("", |keep| &keep.mark))
        .arg("tombstone_time", text(*tombstone))
        .arg("claim", text(Some(CLAIM)));
    Some(call)
}

fn look(command: &Command) -> ScriptCall {
    let names = &command.names;
    ScriptCall::of(&LOOK)
        .key("lock", names.main())
        .key("queue", names.queue())
        .key("waiters", names.waiters())
        .key("fence", names.fence())
        .key("limits", names.limit())
        .arg("most", MOST_SHOWN.to_string())
}

fn force(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    let Verb::Force { tokens, foreign, because } = &command.verb else { return None };
    let names = &command.names;
    let call = ScriptCall::of(&FORCE)
        .key("lock", names.main())
        .key("queue", names.queue())
        .key("waiters", names.waiters())
        .key("limits", names.limit())
        .arg("reason", &**because)
        .arg("claim", text(Some(CLAIM)))
        .arg("foreign", foreign.as_deref().unwrap_or_default());
    let each = |call: ScriptCall, token: &crate::Token| {
        call.key("tombstone", names.tombstone(token.wire()))
            .arg("token", &**token.wire())
            .arg("channel", context.channel_of(names, token.manager().unwrap_or_default()))
    };
    Some(tokens.iter().fold(call, each))
}
