//! Encodes commands for the server.

mod calls;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

pub(super) use calls::{alone, call};

use std::time::Duration;

use redis::Cmd;

use super::dialect::words;
use super::listen::Channel;
use super::probe::Delete;
use crate::Token;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::token::MOST_TOKEN;
use crate::domain::value::MOST_VALUE;
use crate::store::redis::scripts::Lua;
use crate::store::{Command, Verb};
use calls::text;

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
        Verb::Release { token, waited_for: false, keep: None, tombstone: None, .. } => {
            Some(context.delete.cmd(command.names.main(), token))
        }
        Verb::Fetch => Some(fetch(command)),
        Verb::InUse { asker } => Some(in_use(command, asker)),
        Verb::Newer { .. } => Some(words(["ZRANGE", &command.names.latest(), "-1", "-1"])),
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
    let key = command.names.main();
    match ttl {
        Some(_) => words(["SET", key, token, "NX", "PX", &text(ttl)]),
        None => words(["SET", key, token, "NX"]),
    }
}

/// Reads no more than a value of ours can have.
fn fetch(command: &Command) -> Cmd {
    let mut cmd = words(["GETRANGE", &command.names.value()]);
    cmd.arg(0).arg(MOST_TOKEN + MOST_VALUE);
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
    words(["SET", &command.names.tombstone("ping"), "-", "XX", "PX", "1"])
}

/// Answers the process that asked for an idle lease. Tokens of other libraries have no channel.
fn in_use(command: &Command, asker: &str) -> Cmd {
    let token = Token::from_wire(asker);
    let channel = command.names.channel(token.manager().unwrap_or_default());
    words(["PUBLISH", &channel, &["u ", asker].concat()])
}

/// The keys that a command declares at first.
#[cfg(test)]
pub(crate) fn declared(command: &Command) -> Vec<String> {
    match &command.verb {
        Verb::Why { token } => command.names.all().map(|names| names.tombstone(token)).collect(),
        Verb::Ping | Verb::Scan { .. } | Verb::InUse { .. } => Vec::new(),
        Verb::Fetch => vec![command.names.value()],
        Verb::Probe => vec![command.names.tombstone("ping")],
        Verb::Newer { .. } => vec![command.names.latest()],
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

/// A script with its keys and arguments, in the order of its first lines.
pub(in crate::store::redis) struct ScriptCall {
    script: &'static Lua,
    keys: Vec<String>,
    args: Vec<String>,
    in_full: bool,
    /// The name of each, for the test.
    #[cfg(test)]
    names: (Vec<&'static str>, Vec<&'static str>),
}

impl ScriptCall {
    pub(super) fn of(script: &'static Lua) -> Self {
        Self {
            script,
            keys: Vec::with_capacity(6),
            args: Vec::with_capacity(9),
            in_full: false,
            #[cfg(test)]
            names: (Vec::new(), Vec::new()),
        }
    }

    /// Adds a key by the name that the script has for it.
    pub(super) fn key(mut self, name: &'static str, key: impl Into<String>) -> Self {
        #[cfg(test)]
        self.names.0.push(name);
        let _ = name;
        self.keys.push(key.into());
        self
    }

    /// Adds an argument by the name that the script has for it.
    pub(super) fn arg(mut self, name: &'static str, arg: impl Into<String>) -> Self {
        #[cfg(test)]
        self.names.1.push(name);
        let _ = name;
        self.args.push(arg.into());
        self
    }

    #[cfg(test)]
    pub(in crate::store::redis) fn into_keys(self) -> Vec<String> {
        self.keys
    }

    /// With the script's hash, which the server knows after a first use, or with its text.
    pub(in crate::store::redis) fn cmd(&self) -> Cmd {
        let Lua { code, hash, .. } = self.script;
        let (name, script) = if self.in_full { ("EVAL", code) } else { ("EVALSHA", hash) };
        let mut cmd = redis::cmd(name);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }

    /// With the script's text, for a server that has forgotten it; `None` when that was sent.
    pub(in crate::store::redis) fn in_full(self) -> Option<Self> {
        (!self.in_full).then_some(Self { in_full: true, ..self })
    }
}

#[cfg(test)]
mod call_tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::Token;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;
    use crate::store::redis::encode::{self, Context};
    use crate::store::redis::listen::Channel;
    use crate::store::redis::probe::Delete;
    use crate::store::{Acquire, Command, Keep, Verb};

    fn verbs() -> Vec<Verb> {
        let token: Arc<str> = "rl1.t".into();
        let second = Duration::from_secs(1);
        let ttl = Some(second);
        vec![
            Verb::Acquire(Acquire { queue: ttl, ..Acquire::of(Arc::clone(&token), ttl) }),
            Verb::Renew { token: Arc::clone(&token), ttl },
            Verb::Keep { token: Arc::clone(&token), time: second },
            Verb::Check { token: Arc::clone(&token) },
            Verb::Downgrade { token: Arc::clone(&token) },
            Verb::Raise { token: Arc::clone(&token), fence: 7 },
            Verb::Release {
                token,
                waited_for: true,
                keep: Some(Keep { time: second, mark: "m".into(), value: None }),
                share: None,
                tombstone: ttl,
            },
            Verb::Look,
            Verb::Force { tokens: Vec::new(), foreign: None, because: "it hangs".into() },
            Verb::Force {
                tokens: vec![Token::fresh("a", ""), Token::fresh("b", "")],
                foreign: None,
                because: "it hangs".into(),
            },
        ]
    }

    /// The names in the order of a script's head, repeated as often as needed.
    fn expected(fixed: &[&'static str], each: &[&'static str], count: usize) -> Vec<&'static str> {
        let repeated = each.iter().copied().cycle().take(count.saturating_sub(fixed.len()));
        fixed.iter().copied().chain(repeated).collect()
    }

    #[test]
    fn every_script_is_given_what_its_head_names() {
        let names = |key: &str| Names::new("", key.to_owned());
        let together = Names::together(names("a{t}"), vec![names("b{t}"), names("c{t}")], "abc");
        let context = Context { delete: Delete::Script, channel: &Channel::listened_at("c") };
        for kind in Kind::EACH {
            let mut calls = 0;
            for verb in verbs() {
                let names = together.clone();
                let command = Command { names, kind, verb, timeout: Duration::from_secs(1) };
                let Some(call) = encode::call(&command, &context) else { continue };
                let (head, (keys, args)) = (&call.script.head, &call.names);
                assert_eq!(*keys, expected(&head.keys, &head.each_keys, keys.len()), "{command:?}");
                assert_eq!(*args, expected(&head.args, &head.each_args, args.len()), "{command:?}");
                if !head.each_keys.is_empty() {
                    let repeated = keys.len() - head.keys.len();
                    assert_eq!(repeated % head.each_keys.len(), 0, "{command:?}");
                    let count = repeated / head.each_keys.len();
                    assert_eq!(args.len() - head.args.len(), count * head.each_args.len());
                }
                calls += 1;
            }
            let scripts = if kind == Kind::Mutex { 8 } else { 6 };
            assert_eq!(calls, scripts, "verbs that have a script, {kind:?}");
        }
    }

    #[test]
    fn a_script_in_full_is_the_same_call_with_its_text() {
        let names = Names::new("lock", "lock:a");
        let command =
            Command { names, kind: Kind::Mutex, verb: Verb::Look, timeout: Duration::from_secs(1) };
        let context = Context { delete: Delete::Script, channel: &Channel::listened_at("c") };
        let call = encode::call(&command, &context).unwrap();
        let words = |cmd: &redis::Cmd| cmd.args_iter().map(|arg| format!("{arg:?}")).collect();
        let (hash, start) = (call.cmd(), redis::cmd("EVAL").arg(&*call.script.code).clone());
        let call = call.in_full().unwrap();
        let (hash, full): (Vec<_>, Vec<_>) = (words(&hash), words(&call.cmd()));
        assert!(call.in_full().is_none(), "there is no other way to send it");
        assert_eq!(full[..2], words(&start)[..]);
        assert_eq!(full[2..], hash[2..]);
        assert!(full.len() > 4, "with its keys and arguments");
    }
}
