//! Commands as the server wants them.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::probe::Delete;
use super::scripts::{ACQUIRE, FORCE, LOOK, Lua, RELEASE, RENEW, YIELD};
use crate::demand::Kind;
use crate::store::{CLAIM, Command, Verb};

mod all;
mod shared;

/// How many keys the server looks at for one answer: some tenths of a millisecond of its time.
const PAGE: usize = 500;

/// What a command's form depends on besides the command.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) delete: Delete,
    /// Where this manager is told of grants; `-` when it is not.
    pub(super) channel: Arc<str>,
}

/// One call of a script.
pub(super) struct Call {
    script: &'static Lua,
    keys: Vec<String>,
    args: Vec<String>,
}

impl Call {
    /// By the script's name, which the server knows after a first use.
    pub(super) fn by_hash(&self) -> Cmd {
        self.form("EVALSHA", &self.script.hash)
    }

    /// With the script's text, for a server that has forgotten it.
    pub(super) fn in_full(&self) -> Cmd {
        self.form("EVAL", &self.script.code)
    }

    fn form(&self, name: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(name);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}

/// The plain command that serves without a script, where there is one.
pub(super) fn plain(command: &Command, context: &Context) -> Option<Cmd> {
    if let Verb::Why { token } = &command.verb {
        return Some(why(command, token));
    }
    if command.kind != Kind::Mutex {
        return None;
    }
    match &command.verb {
        Verb::Take { token, ttl } => {
            let mut cmd = Cmd::with_capacity(6, 64 + command.names.main().len() + token.len());
            cmd.arg("SET");
            cmd.arg(command.names.main()).arg(&**token).arg("NX");
            if let Some(ttl) = ttl {
                cmd.arg("PX").arg(text(Some(*ttl)));
            }
            Some(cmd)
        }
        Verb::Release { token, waited_for: false, keep: None, bury: None } => {
            Some(context.delete.command(command.names.main(), token))
        }
        Verb::Scan { cursor } => {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(*cursor).arg("MATCH").arg(command.names.main()).arg("COUNT").arg(PAGE);
            Some(cmd)
        }
        _ => None,
    }
}

/// The form of a command whose answer is a single line, where there is one.
pub(super) fn brief(command: &Command, context: &Context) -> Option<Cmd> {
    match (command.kind, &command.verb) {
        (Kind::Mutex, Verb::Release { waited_for: true, keep: None, bury: None, .. }) => {
            let mut call = call(command, context)?;
            call.args.push("1".into());
            Some(call.by_hash())
        }
        _ => plain(command, context),
    }
}

/// The script that serves a command; none where there is no such command for this kind of lock.
pub(super) fn call(command: &Command, context: &Context) -> Option<Call> {
    match command.kind {
        Kind::Mutex => mutex(command, context),
        Kind::Read | Kind::Write | Kind::Permit { .. } => shared::call(command, context),
        Kind::All { ordered } => all::call(command, ordered, context),
    }
}

fn mutex(command: &Command, context: &Context) -> Option<Call> {
    let names = &command.names;
    let mark = "1";
    let claim = text(Some(CLAIM));
    let (script, keys, args): (&'static Lua, Vec<String>, Vec<String>) = match &command.verb {
        Verb::Take { .. }
        | Verb::Downgrade { .. }
        | Verb::Raise { .. }
        | Verb::Why { .. }
        | Verb::Scan { .. } => return None,
        Verb::Acquire { token, ttl, queue, fair, fences, repair_orphan } => (
            &ACQUIRE,
            vec![
                names.main().into(),
                names.queue(),
                names.waiters(),
                names.fence(),
                names.tomb(token),
            ],
            vec![
                token.to_string(),
                text(*ttl),
                text(*queue),
                context.channel.to_string(),
                if *fair { "1" } else { "0" }.into(),
                fences.to_string(),
                text(*repair_orphan),
                mark.into(),
                claim,
            ],
        ),
        Verb::Renew { token, .. } | Verb::Keep { token, .. } | Verb::Check { token } => {
            let (ttl, how) = renewal(&command.verb);
            (&RENEW, vec![names.main().into()], vec![token.to_string(), text(ttl), how.into()])
        }
        Verb::Yield { token, next, ttl, fences, queue } => (
            &YIELD,
            vec![
                names.main().into(),
                names.queue(),
                names.waiters(),
                names.fence(),
                names.tomb(token),
            ],
            vec![
                token.to_string(),
                next.to_string(),
                text(*ttl),
                text(Some(*queue)),
                context.channel.to_string(),
                fences.to_string(),
                mark.into(),
                claim,
            ],
        ),
        Verb::Release { token, keep, bury, .. } => (
            &RELEASE,
            vec![names.main().into(), names.queue(), names.waiters(), names.tomb(token)],
            vec![token.to_string(), text(*keep), text(*bury), claim, mark.into()],
        ),
        Verb::Look => (
            &LOOK,
            vec![names.main().into(), names.queue(), names.waiters(), names.fence(), names.limit()],
            Vec::new(),
        ),
        Verb::Force { tokens, foreign, because } => {
            let mut keys = vec![names.main().into(), names.queue(), names.waiters(), names.limit()];
            let foreign = if *foreign { "1" } else { "0" };
            let mut args = vec![because.to_string(), claim, mark.into(), foreign.into()];
            for token in tokens {
                keys.push(names.tomb(token.wire()));
                args.push(token.wire().to_string());
                args.push(names.channel(token.manager().unwrap_or_default()));
            }
            (&FORCE, keys, args)
        }
    };
    Some(Call { script, keys, args })
}

/// Asks for the reasons that were left where holds of the token were ended by force.
fn why(command: &Command, token: &str) -> Cmd {
    let tombs: Vec<_> = command.names.all().map(|names| names.tomb(token)).collect();
    let mut cmd = redis::cmd(if tombs.len() == 1 { "GET" } else { "MGET" });
    cmd.arg(tombs);
    cmd
}

/// The time that a verb gives a lease, and what the scripts do with it.
fn renewal(verb: &Verb) -> (Option<Duration>, &'static str) {
    match verb {
        Verb::Renew { ttl: Some(ttl), .. } => (Some(*ttl), "lengthen"),
        Verb::Keep { time, .. } => (Some(*time), "set"),
        _ => (None, "look"),
    }
}

/// Whether a flag is set, as the scripts read it.
fn flag(set: bool) -> String {
    if set { "1" } else { "0" }.into()
}

/// Milliseconds as the scripts read them; none is `0`.
fn text(duration: Option<Duration>) -> String {
    duration.map_or(0, |duration| duration.as_millis()).to_string()
}
