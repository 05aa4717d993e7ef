//! Commands for locks that several can hold at once: `shared.lua` and its siblings.

use super::{Call, Context, flag, renewal, text};
use crate::demand::Kind;
use crate::store::redis::scripts::{
    SHARED_ACQUIRE, SHARED_DOWNGRADE, SHARED_RELEASE, SHARED_RENEW,
};
use crate::store::{CLAIM, Command, Verb};

pub(super) fn call(command: &Command, context: &Context) -> Option<Call> {
    let names = &command.names;
    let (mode, limit) = match command.kind {
        Kind::Read => ("r", 0),
        Kind::Write => ("w", 0),
        Kind::Permit { limit } => ("p", limit),
        Kind::Mutex | Kind::All { .. } => return None,
    };
    let (mode, limit, claim) = (mode.to_owned(), limit.to_string(), text(Some(CLAIM)));
    let lock = names.main().to_owned();
    let call = match &command.verb {
        Verb::Acquire { token, ttl, queue, fair, fences, .. } => Call {
            script: &SHARED_ACQUIRE,
            keys: vec![
                lock,
                names.queue(),
                names.waiters(),
                names.fence(),
                names.tomb(token),
                names.limit(),
            ],
            args: vec![
                mode,
                limit,
                token.to_string(),
                text(*ttl),
                text(*queue),
                context.channel.to_string(),
                flag(*fair),
                fences.to_string(),
                claim,
            ],
        },
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let (ttl, how) = renewal(&command.verb);
            Call {
                script: &SHARED_RENEW,
                keys: vec![lock, names.limit(), names.tomb(token)],
                args: vec![mode, token.to_string(), text(ttl), how.into()],
            }
        }
        Verb::Release { token, keep, bury, .. } => Call {
            script: &SHARED_RELEASE,
            keys: vec![lock, names.queue(), names.waiters(), names.limit(), names.tomb(token)],
            args: vec![mode, limit, token.to_string(), text(*keep), text(*bury), claim],
        },
        Verb::Downgrade { token } => Call {
            script: &SHARED_DOWNGRADE,
            keys: vec![lock, names.queue(), names.waiters(), names.limit(), names.tomb(token)],
            args: vec![token.to_string(), claim],
        },
        _ => return None,
    };
    Some(call)
}
