//! The script call for each command.

use std::time::Duration;

use super::{Context, ScriptCall};
use crate::Token;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::redis::scripts::{
    ACQUIRE, ALL_ACQUIRE, ALL_RAISE, ALL_RELEASE, ALL_RENEW, COMPLETE, FORCE, LOOK, Lua, RELEASE,
    RENEW, SHARE_ACQUIRE, SHARE_RELEASE, SHARED_ACQUIRE, SHARED_DOWNGRADE, SHARED_FREE,
    SHARED_RELEASE, SHARED_RENEW,
};
use crate::store::{Acquire, CLAIM, Command, Keep, MOST_SHOWN, Newest, Verb};

/// The script call for a command; `None` when this kind of lock has no such command.
pub(in crate::store::redis) fn call(
    command: &Command,
    context: &Context<'_>,
) -> Option<ScriptCall> {
    match command.kind {
        Kind::Mutex => of_mutex(command, context),
        Kind::All { ordered } => of_all(command, ordered, context),
        _ => of_shared(command, context),
    }
}

/// A mutex, and what looks at any lock or ends it by force.
fn of_mutex(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    let names = &command.names;
    let call = match &command.verb {
        Verb::Acquire(terms) => {
            let script = if terms.share { &SHARE_ACQUIRE } else { &ACQUIRE };
            let call = ScriptCall::of(script)
                .waited_for(names)
                .key("fence", names.fence())
                .key("tombstone", names.tombstone(&terms.token));
            let call = if terms.share { call.key("shared", names.shared()) } else { call };
            call.asked(terms, context)
                .arg("repair", text(terms.repair_orphan))
                .claim()
                .arg("ask", text(terms.ask))
                .rarely_asked(terms, command.kind, names)
        }
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let mut call = ScriptCall::of(&RENEW).key("lock", names.main());
            if planted!(TwoKeyRenew) {
                call = call.key("tombstone", names.tombstone(token));
            }
            call.renewed(token, &command.verb)
        }
        Verb::Release { .. } => return release_of_mutex(command),
        Verb::Look => ScriptCall::of(&LOOK)
            .waited_for(names)
            .key("fence", names.fence())
            .key("limits", names.limit())
            .arg("most", MOST_SHOWN.to_string()),
        Verb::Force { tokens, foreign, because } => {
            let call = ScriptCall::of(&FORCE)
                .waited_for(names)
                .key("limits", names.limit())
                .key("value", names.value())
                .arg("reason", &**because)
                .claim()
                .arg("foreign", foreign.as_deref().unwrap_or_default());
            let each = |call: ScriptCall, token: &Token| {
                call.key("tombstone", names.tombstone(token.wire()))
                    .arg("token", &**token.wire())
                    .arg("channel", context.channel_of(names, token.manager().unwrap_or_default()))
            };
            tokens.iter().fold(call, each)
        }
        _ => return None,
    };
    Some(call)
}

/// The release of a mutex, which may leave a value for other calls.
fn release_of_mutex(command: &Command) -> Option<ScriptCall> {
    let names = &command.names;
    let call = match &command.verb {
        Verb::Release {
            token,
            keep: Some(keep @ Keep { value: Some(value), .. }),
            tombstone,
            ..
        } => ScriptCall::of(&COMPLETE)
            .waited_for(names)
            .key("tombstone", names.tombstone(token))
            .key("value", names.value())
            .released(token, Some(keep), *tombstone)
            .arg("text", value.as_str()),
        Verb::Release { token, share: Some((value, time)), keep, tombstone, .. } => {
            ScriptCall::of(&SHARE_RELEASE)
                .waited_for(names)
                .key("tombstone", names.tombstone(token))
                .key("shared", names.shared())
                .released(token, keep.as_ref(), *tombstone)
                .arg("text", value.as_str())
                .arg("time", text(Some(*time)))
        }
        Verb::Release { token, keep, tombstone, .. } => ScriptCall::of(&RELEASE)
            .waited_for(names)
            .key("tombstone", names.tombstone(token))
            .released(token, keep.as_ref(), *tombstone),
        _ => return None,
    };
    Some(call)
}

/// A lock that several can hold.
fn of_shared(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    let names = &command.names;
    let of = |script| ScriptCall::of(script).waited_for(names);
    let call = match &command.verb {
        Verb::Acquire(terms) => of(&SHARED_ACQUIRE)
            .key("fence", names.fence())
            .key("tombstone", names.tombstone(&terms.token))
            .key("limits", names.limit())
            .mode(command.kind, terms.slotted)?
            .asked(terms, context)
            .claim()
            .rarely_asked(terms, command.kind, names),
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let is_limited = command.kind.limit().is_some_and(|limit| limit > 0);
            let limits = if is_limited { names.limit() } else { names.main().to_owned() };
            renew_shared(command, token, limits)?
        }
        Verb::Release { token, keep, tombstone, .. } => of(&SHARED_RELEASE)
            .key("limits", names.limit())
            .key("tombstone", names.tombstone(token))
            .mode(command.kind, false)?
            .arg("token", &**token)
            .arg("keep", text(keep.as_ref().map(|keep| keep.time)))
            .arg("tombstone_time", text(*tombstone))
            .claim(),
        Verb::Downgrade { token } => of(&SHARED_DOWNGRADE)
            .key("limits", names.limit())
            .key("tombstone", names.tombstone(token))
            .arg("token", &**token)
            .claim(),
        _ => return None,
    };
    Some(call)
}

/// The call of a script with the lock's key alone, for a node that refuses more: what keeps or frees a
/// lock that several can hold.
pub(in crate::store::redis) fn alone(command: &Command) -> Option<ScriptCall> {
    let (names, mode) = (&command.names, command.kind.traits().mode?);
    match &command.verb {
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            renew_shared(command, token, names.main().to_owned())
        }
        // A release that leaves a lease or a tombstone needs the other keys.
        Verb::Release { token, keep: None, tombstone: None, .. } => {
            let call = ScriptCall::of(&SHARED_FREE).key("lock", names.main());
            Some(call.arg("mode", mode).arg("token", &**token))
        }
        _ => None,
    }
}

fn renew_shared(command: &Command, token: &str, limits: String) -> Option<ScriptCall> {
    let call = ScriptCall::of(&SHARED_RENEW).key("lock", command.names.main());
    Some(call.key("limits", limits).mode(command.kind, false)?.renewed(token, &command.verb))
}

/// Several keys at once.
fn of_all(command: &Command, ordered: bool, context: &Context<'_>) -> Option<ScriptCall> {
    let each = |call: ScriptCall, key: fn(ScriptCall, &Names) -> ScriptCall| {
        command.names.all().fold(call, key)
    };
    let of = |script: &'static Lua| ScriptCall::of(script);
    let call = match &command.verb {
        Verb::Acquire(terms) => {
            let tombstone = command.names.tombstone(&terms.token);
            let call = of(&ALL_ACQUIRE).key("tombstone", tombstone);
            each(call, |call, names| call.waited_for(names).key("fence", names.fence()))
                .asked(terms, context)
                .arg("repair", text(terms.repair_orphan))
                .claim()
                .arg("ordered", flag(ordered))
        }
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            each(of(&ALL_RENEW), |call, names| call.key("lock", names.main()))
                .renewed(token, &command.verb)
        }
        Verb::Raise { token, fence } => {
            each(of(&ALL_RAISE), |call, names| call.key("fence", names.fence()))
                .arg("token", &**token)
                .arg("reached", fence.to_string())
        }
        Verb::Release { token, keep, tombstone, .. } => {
            let call = command.names.all().fold(of(&ALL_RELEASE), |call, names| {
                call.waited_for(names).key("tombstone", names.tombstone(token))
            });
            call.released(token, keep.as_ref(), *tombstone)
        }
        _ => return None,
    };
    Some(call)
}

/// What several scripts have in common, in the order of their first lines.
impl ScriptCall {
    fn waited_for(self, names: &Names) -> Self {
        self.key("lock", names.main()).key("queue", names.queue()).key("waiters", names.waiters())
    }

    /// A limit that begins with a zero asks for a slot.
    fn mode(self, kind: Kind, slotted: bool) -> Option<Self> {
        let mode = self.arg("mode", kind.traits().mode?);
        let (sign, limit) = (if slotted { "0" } else { "" }, kind.limit().unwrap_or(0));
        Some(mode.arg("limit", format!("{sign}{limit}")))
    }

    fn asked(self, terms: &Acquire, context: &Context<'_>) -> Self {
        self.arg("token", &*terms.token)
            .arg("ttl", text(terms.ttl))
            .arg("place", text(terms.queue))
            .arg("channel", &*context.channel.name())
            .arg("fair", flag(terms.fair))
            .arg("fences", terms.fences.to_string())
    }

    /// The ttl that a verb gives a lease, and how it is applied.
    fn renewed(self, token: &str, verb: &Verb) -> Self {
        let (ttl, how) = match verb {
            Verb::Renew { ttl: Some(ttl), .. } => (Some(*ttl), "lengthen"),
            Verb::Keep { time, .. } => (Some(*time), "set"),
            _ => (None, "look"),
        };
        self.arg("token", token).arg("ttl", text(ttl)).arg("how", how)
    }

    fn released(self, token: &str, keep: Option<&Keep>, tombstone: Option<Duration>) -> Self {
        self.arg("token", token)
            .arg("keep", text(keep.map(|keep| keep.time)))
            .arg("mark", keep.map_or("", |keep| &keep.mark))
            .arg("tombstone_time", text(tombstone))
            .claim()
    }

    /// Arguments that few acquisitions have, as a repeated part: the others send none.
    fn rarely_asked(self, terms: &Acquire, kind: Kind, names: &Names) -> Self {
        if terms.most_waiting.is_none() && terms.newest.is_none() {
            return self;
        }
        let call = self.arg("most", terms.most_waiting.unwrap_or(0).to_string());
        if kind != Kind::Mutex {
            return call;
        }
        let newest = match terms.newest {
            None => "0",
            Some(Newest::First) => "1",
            Some(Newest::Later) => "2",
        };
        call.key("latest", names.latest()).arg("newest", newest)
    }

    fn claim(self) -> Self {
        self.arg("claim", text(Some(CLAIM)))
    }
}

/// Whether a flag is set, as the scripts read it.
fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}

/// Milliseconds as the scripts read them; none is `0`.
pub(super) fn text(duration: Option<Duration>) -> String {
    duration.map_or(0, |duration| duration.as_millis()).to_string()
}
