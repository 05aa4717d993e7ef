//! Encodes commands for the server.

mod all;
mod call;
mod mutex;
mod shared;
#[cfg(test)]
mod tests;

pub(super) use call::ScriptCall;

use std::time::Duration;

use redis::Cmd;

use super::channel::Channel;
use super::probe::Delete;
use crate::Token;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Acquire, Command, Verb};

/// How many keys one `SCAN` looks at, which takes the server some tenths of a millisecond.
const PAGE: usize = 500;

/// What the encoding depends on besides the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) delete: Delete,
    /// The channel on which this manager is notified.
    pub(super) channel: &'a Channel,
}

impl Context<'_> {
    /// The channel of another manager. It is sharded if this manager's channel is.
    fn channel_of(&self, names: &Names, manager: &str) -> String {
        match self.channel.name().rsplit_once("~m:") {
            Some((base, _)) => [base, "~m:", manager].concat(),
            None => names.channel(manager),
        }
    }
}

/// The plain command that can be used instead of a script, if there is one.
pub(super) fn plain(command: &Command, context: &Context<'_>) -> Option<Cmd> {
    if let Verb::Why { token } = &command.verb {
        return Some(why(command, token));
    }
    if command.kind != Kind::Mutex {
        return None;
    }
    match &command.verb {
        Verb::Take { token, ttl } => Some(take(command, token, *ttl)),
        Verb::Release { token, waited_for: false, keep: None, tombstone: None } => {
            Some(context.delete.cmd(command.names.main(), token))
        }
        Verb::InUse { asker } => Some(in_use(command, asker)),
        Verb::Ping => Some(redis::cmd("PING")),
        Verb::Probe => Some(probe(command)),
        Verb::Scan { cursor } => {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(*cursor).arg("MATCH").arg(command.names.main()).arg("COUNT").arg(PAGE);
            Some(cmd)
        }
        _ => None,
    }
}

fn take(command: &Command, token: &str, ttl: Option<Duration>) -> Cmd {
    let mut cmd = redis::cmd("SET");
    cmd.arg(command.names.main()).arg(token).arg("NX");
    if ttl.is_some() {
        cmd.arg("PX").arg(text(ttl));
    }
    cmd
}

/// Asks for the reasons that were left where holds of the token were ended by force.
pub(super) fn why(command: &Command, token: &str) -> Cmd {
    let tombstones: Vec<_> = command.names.all().map(|names| names.tombstone(token)).collect();
    let mut cmd = redis::cmd(if tombstones.len() == 1 { "GET" } else { "MGET" });
    cmd.arg(tombstones);
    cmd
}

/// Would overwrite the tombstone of a token that never was. It is refused like every other write.
fn probe(command: &Command) -> Cmd {
    let mut cmd = redis::cmd("SET");
    cmd.arg(command.names.tombstone("ping")).arg("-").arg("XX").arg("PX").arg(1);
    cmd
}

/// Answers the process that asked for an idle lease. Tokens of other libraries have no channel.
fn in_use(command: &Command, asker: &str) -> Cmd {
    let token = Token::from_wire(asker);
    let channel = command.names.channel(token.manager().unwrap_or_default());
    let mut cmd = redis::cmd("PUBLISH");
    cmd.arg(channel).arg(["u ", asker].concat());
    cmd
}

/// The script call for a command; `None` when this kind of lock has no such command.
pub(super) fn call(command: &Command, context: &Context<'_>) -> Option<ScriptCall> {
    match command.kind {
        Kind::Mutex => mutex::call(command, context),
        Kind::All { ordered } => all::call(command, ordered, context),
        _ => shared::call(command, context),
    }
}

/// The call of a script with the lock's key alone, for a node that refuses more: what keeps or frees a
/// lock that several can hold.
pub(super) fn alone(command: &Command) -> Option<ScriptCall> {
    shared::alone(command)
}

/// The keys that a command declares at first.
#[cfg(test)]
pub(crate) fn declared(command: &Command) -> Vec<String> {
    match &command.verb {
        Verb::Why { token } => command.names.all().map(|names| names.tombstone(token)).collect(),
        Verb::Ping | Verb::Scan { .. } | Verb::InUse { .. } => Vec::new(),
        Verb::Probe => vec![command.names.tombstone("ping")],
        Verb::Take { .. } => vec![command.names.main().to_owned()],
        Verb::Release { waited_for: false, keep: None, tombstone: None, .. }
            if command.kind == Kind::Mutex =>
        {
            vec![command.names.main().to_owned()]
        }
        _ => declared_by_script(command),
    }
}

/// The keys that the script for a command declares.
#[cfg(test)]
pub(crate) fn declared_by_script(command: &Command) -> Vec<String> {
    let channel = Channel::listened_at("c");
    let context = Context { delete: Delete::Script, channel: &channel };
    call(command, &context).map(ScriptCall::into_keys).unwrap_or_default()
}

/// Adds the arguments that every acquisition has, in the order of the scripts.
fn asked(call: ScriptCall, terms: &Acquire, context: &Context<'_>) -> ScriptCall {
    call.arg("token", &*terms.token)
        .arg("ttl", text(terms.ttl))
        .arg("place", text(terms.queue))
        .arg("channel", &*context.channel.name())
        .arg("fair", flag(terms.fair))
        .arg("fences", terms.fences.to_string())
}

/// The ttl that a verb gives a lease, and how the scripts apply it.
fn renewal(verb: &Verb) -> (Option<Duration>, &'static str) {
    match verb {
        Verb::Renew { ttl: Some(ttl), .. } => (Some(*ttl), "lengthen"),
        Verb::Keep { time, .. } => (Some(*time), "set"),
        _ => (None, "look"),
    }
}

/// Whether a flag is set, as the scripts read it.
fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}

/// Milliseconds as the scripts read them; none is `0`.
fn text(duration: Option<Duration>) -> String {
    duration.map_or(0, |duration| duration.as_millis()).to_string()
}
