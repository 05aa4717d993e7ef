//! The commands that locks are taken, kept and released with when nobody else wants them, encoded
//! without allocations.
//!
//! Almost all commands are of these forms. Through the driver's `Cmd` and a list of strings,
//! encoding them was a sixth of the work for a pair of acquisition and release.

use std::time::Duration;

use super::command_sink::CommandSink;
use super::probe::Delete;
use super::scripts::{DELETE, RENEW};
use crate::domain::kind::Kind;
use crate::store::{Command, Verb};

/// A command for a mutex that needs no more than the key of the lock.
pub(super) enum Fast<'a> {
    Take { key: &'a str, token: &'a str, ttl: Option<Duration> },
    Renew { key: &'a str, token: &'a str, ttl: Duration },
    Release { key: &'a str, token: &'a str },
}

impl<'a> Fast<'a> {
    /// `None` for a command that has no such form.
    pub(super) fn of(command: &'a Command) -> Option<Self> {
        if command.kind != Kind::Mutex {
            return None;
        }
        let key = command.names.main();
        match &command.verb {
            Verb::Take { token, ttl } => Some(Self::Take { key, token, ttl: *ttl }),
            Verb::Renew { token, ttl: Some(ttl) } => Some(Self::Renew { key, token, ttl: *ttl }),
            Verb::Release { token, waited_for: false, keep: None, tombstone: None } => {
                Some(Self::Release { key, token })
            }
            _ => None,
        }
    }

    /// Whether its reply is that of a plain command, or that of the script that renews.
    pub(super) fn is_plain(&self) -> bool {
        !matches!(self, Self::Renew { .. })
    }

    pub(super) fn send(&self, delete: Delete, out: &mut dyn CommandSink) {
        match self {
            Self::Take { key, token, ttl: None } => {
                out.send_words(&[b"SET", key.as_bytes(), token.as_bytes(), b"NX"]);
            }
            Self::Take { key, token, ttl: Some(ttl) } => {
                let mut digits = itoa::Buffer::new();
                let ttl = digits.format(millis(*ttl)).as_bytes();
                out.send_words(&[b"SET", key.as_bytes(), token.as_bytes(), b"NX", b"PX", ttl]);
            }
            Self::Renew { key, token, ttl } => {
                let (hash, mut digits) = (RENEW.hash.as_bytes(), itoa::Buffer::new());
                let ttl = digits.format(millis(*ttl)).as_bytes();
                let (key, token) = (key.as_bytes(), token.as_bytes());
                out.send_words(&[b"EVALSHA", hash, b"1", key, token, ttl, b"lengthen"]);
            }
            Self::Release { key, token } => delete.send(key, token, out),
        }
    }
}

impl Delete {
    /// Deletes the key if it has this value.
    pub(super) fn send(self, key: &str, value: &str, out: &mut dyn CommandSink) {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        match self {
            Self::DelIfEq => out.send_words(&[b"DELIFEQ", key, value]),
            Self::DelEx => out.send_words(&[b"DELEX", key, b"IFEQ", value]),
            Self::Script => out.send_words(&[b"EVALSHA", DELETE.hash.as_bytes(), b"1", key, value]),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
