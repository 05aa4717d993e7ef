//! The commands that read and write leases.

use std::time::Duration;

use redis::{Cmd, Value};

use super::decode;
use crate::domain::fault::Fault;

/// How a server is read without scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Dialect {
    /// Values are read as a whole.
    #[default]
    Values,
    /// Of a value that is not ours only the beginning is read, however long it is: Redis from 2.8 on, where
    /// `PTTL` tells an empty value from none.
    Ranges,
}

/// The most bytes of a value that are read: more than a token of ours has, and enough to tell values of
/// other programs apart.
pub(super) const MOST_READ: usize = 4096;

/// Commands that change nothing, whose answers show the dialect.
pub(super) const PROBES: [&[&str]; 2] = [&["GETRANGE", "~", "0", "0"], &["PTTL", "~"]];

impl Dialect {
    /// What the answers to [`PROBES`] show.
    pub(super) fn of(answers: &[Value]) -> Self {
        let lacks = |value: &Value| {
            matches!(value, Value::ServerError(error) if {
                let detail = error.details().unwrap_or_default();
                decode::code_of(error) == "NOPERM"
                    || detail.contains("unknown command")
                    || detail.contains("syntax error")
            })
        };
        match answers {
            [range, ttl] if lacks(range) || *ttl == Value::Int(-1) => Self::Values,
            _ => Self::Ranges,
        }
    }

    /// The command that reads a value, or enough of it.
    pub(super) fn value(self, key: &str) -> Cmd {
        let mut cmd = words([if self == Self::Ranges { "GETRANGE" } else { "GET" }, key]);
        if self == Self::Ranges {
            cmd.arg(0).arg(MOST_READ);
        }
        cmd
    }

    /// The commands that read a value that may be empty, or enough of it, and whether there is one.
    pub(super) fn value_or_none(self, key: &str) -> impl Iterator<Item = Cmd> + use<> {
        let exists = (self == Self::Ranges).then(|| words(["EXISTS", key]));
        std::iter::once(self.value(key)).chain(exists)
    }

    /// The answer to the first of those commands, or nil.
    pub(super) fn there(
        self,
        mut next: impl FnMut() -> Result<Value, Fault>,
    ) -> Result<Value, Fault> {
        let value = next()?;
        if self != Self::Ranges {
            return Ok(value);
        }
        match next()? {
            Value::Int(0) => Ok(Value::Nil),
            Value::ServerError(error) => Err(decode::refusal(&error)),
            _ => Ok(value),
        }
    }
}

/// The command that writes a value with a ttl, or without one.
pub(super) fn set(key: &str, value: impl AsRef<[u8]>, time: Option<Duration>) -> Cmd {
    let value = value.as_ref();
    let mut cmd = Cmd::with_capacity(5, 64 + key.len() + value.len());
    cmd.arg("SET").arg(key).arg(value);
    if let Some(time) = time {
        cmd.arg("PX").arg(millis(time));
    }
    cmd
}

/// The command that sets the ttl of a key.
pub(super) fn expire(key: &str, time: Duration) -> Cmd {
    let mut cmd = Cmd::with_capacity(3, 48 + key.len());
    cmd.arg("PEXPIRE").arg(key).arg(millis(time));
    cmd
}

/// The command of these words.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Cmd {
    let mut cmd = Cmd::with_capacity(N, words.iter().map(|word| word.len()).sum());
    cmd.arg(&words[..]);
    cmd
}

/// At least one millisecond, since a ttl of zero would delete the key.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_shows_its_dialect() {
        let error = |line: &str| redis::parse_redis_value(line.as_bytes()).unwrap();
        let unknown = || error("-ERR unknown command 'GETRANGE'\r\n");
        let answers = |range, ttl| Dialect::of(&[range, ttl]);
        let (none, ok) = (|| Value::Int(-2), || Value::Okay);
        assert_eq!(answers(ok(), none()), Dialect::Ranges);
        assert_eq!(answers(ok(), error("-MOVED 1 a:1\r\n")), Dialect::Ranges);
        assert_eq!(answers(ok(), Value::Int(-1)), Dialect::Values);
        assert_eq!(answers(unknown(), none()), Dialect::Values);
        assert_eq!(answers(error("-NOPERM no\r\n"), none()), Dialect::Values);
    }
}
