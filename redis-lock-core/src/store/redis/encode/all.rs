//! Commands for several mutexes that are taken together: `all.lua` and its siblings.

use super::{Call, Context, flag, renewal, text};
use crate::names::Names;
use crate::store::redis::scripts::{ALL_ACQUIRE, ALL_RAISE, ALL_RELEASE, ALL_RENEW};
use crate::store::{CLAIM, Command, Verb};

pub(super) fn call(command: &Command, ordered: bool, context: &Context) -> Option<Call> {
    let names = &command.names;
    let mark = flag(true);
    let mut keys = Vec::new();
    let call = match &command.verb {
        Verb::Acquire { token, ttl, queue, fair, fences, repair_orphan } => {
            keys.push(names.tomb(token));
            for names in names.all() {
                keys.extend([names.main().into(), names.queue(), names.waiters(), names.fence()]);
            }
            let args = vec![
                token.to_string(),
                text(*ttl),
                text(*queue),
                context.channel.to_string(),
                flag(*fair),
                fences.to_string(),
                text(*repair_orphan),
                mark,
                text(Some(CLAIM)),
                flag(ordered),
            ];
            Call { script: &ALL_ACQUIRE, keys, args }
        }
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let (ttl, how) = renewal(&command.verb);
            keys.extend(names.all().map(|names| names.main().to_owned()));
            Call { script: &ALL_RENEW, keys, args: vec![token.to_string(), text(ttl), how.into()] }
        }
        Verb::Raise { token, fence } => {
            keys.extend(names.all().map(Names::fence));
            Call { script: &ALL_RAISE, keys, args: vec![token.to_string(), fence.to_string()] }
        }
        Verb::Release { token, keep, bury, .. } => {
            for names in names.all() {
                let side = [names.queue(), names.waiters(), names.tomb(token)];
                keys.push(names.main().into());
                keys.extend(side);
            }
            let args = vec![token.to_string(), text(*keep), text(*bury), text(Some(CLAIM)), mark];
            Call { script: &ALL_RELEASE, keys, args }
        }
        _ => return None,
    };
    Some(call)
}
