//! Commands for locks that several can hold at once: `shared.lua` and the other `shared_*.lua`.

use super::{Context, ScriptCall, asked, renewal, text};
use crate::store::redis::scripts::{
    SHARED_ACQUIRE, SHARED_DOWNGRADE, SHARED_RELEASE, SHARED_RENEW,
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
                .key("tomb", names.tomb(&terms.token))
                .key("limits", names.limit())
                .arg("mode", mode)
                .arg("limit", limit_text);
            asked(call, terms, context).arg("claim", claim)
        }
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let (ttl, how) = renewal(&command.verb);
            ScriptCall::of(&SHARED_RENEW)
                .key("lock", names.main())
                .key("limits", if limit > 0 { names.limit() } else { names.main().to_owned() })
                .arg("mode", mode)
                .arg("token", &**token)
                .arg("ttl", text(ttl))
                .arg("how", how)
        }
        Verb::Release { token, keep, bury, .. } => {
            with_queue(ScriptCall::of(&SHARED_RELEASE), command)
                .key("limits", names.limit())
                .key("tomb", names.tomb(token))
                .arg("mode", mode)
                .arg("limit", limit_text)
                .arg("token", &**token)
                .arg("keep", text(*keep))
                .arg("bury", text(*bury))
                .arg("claim", claim)
        }
        Verb::Downgrade { token } => with_queue(ScriptCall::of(&SHARED_DOWNGRADE), command)
            .key("limits", names.limit())
            .key("tomb", names.tomb(token))
            .arg("token", &**token)
            .arg("claim", claim),
        _ => return None,
    };
    Some(call)
}

fn with_queue(call: ScriptCall, command: &Command) -> ScriptCall {
    let names = &command.names;
    call.key("lock", names.main()).key("queue", names.queue()).key("waiters", names.waiters())
}
