//! One call of a script.

use redis::Cmd;

use crate::store::redis::scripts::Lua;

/// A script with its keys and arguments, in the order of its first lines.
pub(in crate::store::redis) struct ScriptCall {
    script: &'static Lua,
    keys: Vec<String>,
    args: Vec<String>,
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

    /// With the script's hash, which the server knows after a first use.
    pub(in crate::store::redis) fn by_hash(&self) -> Cmd {
        self.form("EVALSHA", &self.script.hash)
    }

    /// With the script's text, for a server that has forgotten it.
    pub(in crate::store::redis) fn in_full(&self) -> Cmd {
        self.form("EVAL", &self.script.code)
    }

    fn form(&self, name: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(name);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::Token;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;
    use crate::store::redis::channel::Channel;
    use crate::store::redis::encode::{self, Context};
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
                keep: Some(Keep { time: second, mark: "m".into() }),
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
        let (hash, full): (Vec<_>, Vec<_>) = (words(&call.by_hash()), words(&call.in_full()));
        let start = redis::cmd("EVAL").arg(&*call.script.code).clone();
        assert_eq!(full[..2], words(&start)[..]);
        assert_eq!(full[2..], hash[2..]);
        assert!(full.len() > 4, "with its keys and arguments");
    }
}
