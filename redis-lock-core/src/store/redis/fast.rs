//! The two scripts of every lock's life, written without a detour.
//!
//! A release belongs to every acquisition and a renewal to every third of a lease, so what they
//! allocate counts. They say the same as the calls in `encode`, which serve when the server has
//! forgotten the scripts.

use std::time::Duration;

use redis::Cmd;

use super::encode::Context;
use super::scripts::{Lua, RELEASE, RENEW};
use crate::demand::Kind;
use crate::names::Names;
use crate::store::{CLAIM, Command, Verb};

/// The call by name, for the verbs that have a short way.
pub(super) fn call(command: &Command, context: &Context) -> Option<Cmd> {
    if command.kind != Kind::Mutex {
        return None;
    }
    let names = &command.names;
    match &command.verb {
        Verb::Release { token, keep, bury } => {
            let mut cmd = evalsha(&RELEASE, 4, names, 7);
            cmd.arg(names.main())
                .arg(names.queue())
                .arg(names.waiters())
                .arg(names.tomb(token))
                .arg(&**token)
                .arg(millis(*keep))
                .arg(millis(*bury))
                .arg(millis(Some(CLAIM)))
                .arg(u8::from(context.native.is_some()));
            Some(cmd)
        }
        Verb::Renew { token, ttl } => {
            let mut cmd = evalsha(&RENEW, 2, names, 3);
            cmd.arg(names.main()).arg(names.tomb(token)).arg(&**token).arg(millis(*ttl));
            Some(cmd)
        }
        _ => None,
    }
}

fn evalsha(script: &Lua, keys: usize, names: &Names, texts: usize) -> Cmd {
    // Every key repeats the lock's name, and every token is about this long.
    let mut cmd = Cmd::with_capacity(12, 64 + texts * (names.main().len() + 120));
    cmd.arg("EVALSHA").arg(&script.hash).arg(keys);
    cmd
}

fn millis(duration: Option<Duration>) -> u64 {
    let millis = duration.map_or(0, |duration| duration.as_millis());
    u64::try_from(millis).unwrap_or(u64::MAX)
}
