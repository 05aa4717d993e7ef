//! Renewals, encoded with few allocations.
//!
//! Ten thousand locks are renewed thousands of times a second, so allocations matter. The result is
//! the same as that of `encode`, which is used when the server has forgotten the script.

use redis::Cmd;

use super::scripts::RENEW;
use crate::domain::kind::Kind;
use crate::store::{Command, Verb};

/// The call by hash, for verbs that have such a short form.
pub(super) fn call(command: &Command) -> Option<Cmd> {
    let (Kind::Mutex, Verb::Renew { token, ttl: Some(ttl) }) = (command.kind, &command.verb) else {
        return None;
    };
    let names = &command.names;
    let mut cmd = Cmd::with_capacity(7, 80 + 2 * (names.main().len() + 120));
    cmd.arg("EVALSHA")
        .arg(&RENEW.hash)
        .arg(1)
        .arg(names.main())
        .arg(&**token)
        .arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
        .arg("lengthen");
    Some(cmd)
}
