//! Renewals, written without a detour.
//!
//! Ten thousand locks are renewed thousands of times a second, so what a renewal allocates counts.
//! It says the same as the call in `encode`, which serves when the server has forgotten the script.

use std::time::Duration;

use redis::Cmd;

use super::scripts::RENEW;
use crate::demand::Kind;
use crate::store::{Command, Verb};

/// The call by name, for what has a short way.
pub(super) fn call(command: &Command) -> Option<Cmd> {
    let (Kind::Mutex, Verb::Renew { token, ttl }) = (command.kind, &command.verb) else {
        return None;
    };
    let names = &command.names;
    let mut cmd = Cmd::with_capacity(7, 64 + 3 * (names.main().len() + 120));
    cmd.arg("EVALSHA")
        .arg(&RENEW.hash)
        .arg(2)
        .arg(names.main())
        .arg(names.tomb(token))
        .arg(&**token)
        .arg(millis(*ttl));
    Some(cmd)
}

fn millis(duration: Option<Duration>) -> u64 {
    let millis = duration.map_or(0, |duration| duration.as_millis());
    u64::try_from(millis).unwrap_or(u64::MAX)
}
