//! Which commands a server has for leases.

use std::time::Duration;

use redis::{Cmd, Value};

use super::decode;
use crate::domain::fault::Fault;

/// What a server can do without scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Dialect {
    /// Leases in milliseconds, with a queue and fencing numbers: Redis from 2.6.12 on.
    #[default]
    Millis,
    /// The same, and of a value that is not ours only the beginning is read, however long it is: Redis
    /// from 2.8 on, where `PTTL` tells an empty value from none.
    Ranges,
    /// Leases in whole seconds, no queue and no fencing numbers: Redis from 2.2 on.
    Seconds,
}

/// The most bytes of a value that are read: more than a token of ours has, and enough to tell values of
/// other programs apart.
pub(super) const MOST_READ: usize = 4096;

/// Commands that change nothing. A server that knows all of them has [`Dialect::Ranges`]. A server
/// that lacks only the first has [`Dialect::Millis`].
pub(super) const PROBES: [&[&str]; 7] = [
    &["GETRANGE", "~", "0", "0"],
    &["PTTL", "~"],
    &["TIME"],
    &["PEXPIRE", "~", "1"],
    &["SET", "~", "-", "XX", "PX", "1"],
    &["ZRANGE", "~", "0", "0"],
    &["HGETALL", "~"],
];

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
            [_, rest @ ..] if rest.iter().any(lacks) => Self::Seconds,
            [range, ttl, ..] if lacks(range) || *ttl == Value::Int(-1) => Self::Millis,
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

    /// The command that asks for the rest of a key's ttl.
    pub(super) fn left(self, key: &str) -> Cmd {
        words([if self == Self::Seconds { "TTL" } else { "PTTL" }, key])
    }

    /// Reads its answer; `None` when the key has no ttl. Whole seconds may have been rounded up.
    pub(super) fn read_left(self, answer: i64) -> Option<Duration> {
        decode::left(match self {
            Self::Millis | Self::Ranges => answer,
            Self::Seconds if answer < 0 => answer,
            Self::Seconds => answer.saturating_sub(1).max(0).saturating_mul(1_000),
        })
    }

    /// The command that writes a value with a ttl, or without one.
    pub(super) fn set(self, key: &str, value: impl AsRef<[u8]>, time: Option<Duration>) -> Cmd {
        let value = value.as_ref();
        let mut cmd = Cmd::with_capacity(5, 64 + key.len() + value.len());
        match (self, time) {
            (_, None) => cmd.arg("SET").arg(key).arg(value),
            (Self::Millis | Self::Ranges, Some(time)) => {
                cmd.arg("SET").arg(key).arg(value).arg("PX").arg(millis(time))
            }
            (Self::Seconds, Some(time)) => cmd.arg("SETEX").arg(key).arg(seconds(time)).arg(value),
        };
        cmd
    }

    /// The command that sets the ttl of a key.
    pub(super) fn expire(self, key: &str, time: Duration) -> Cmd {
        let mut cmd = Cmd::with_capacity(3, 48 + key.len());
        match self {
            Self::Millis | Self::Ranges => cmd.arg("PEXPIRE").arg(key).arg(millis(time)),
            Self::Seconds => cmd.arg("EXPIRE").arg(key).arg(seconds(time)),
        };
        cmd
    }
}

/// The command of these words.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(&words[..]);
    cmd
}

/// At least one millisecond, since a ttl of zero would delete the key.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Rounded up, plus one: a server that counts in seconds may expire a key nearly a second early,
/// and no guard may outlive its lease on the server.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cmd: &Cmd) -> String {
        let word = |arg: redis::Arg<&[u8]>| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        cmd.args_iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_server_answers_shows_its_dialect() {
        let error = |line: &str| redis::parse_redis_value(line.as_bytes()).unwrap();
        let unknown = || error("-ERR unknown command 'GETRANGE'\r\n");
        let answers = |range, ttl, rest| {
            let known = [(); 4].map(|()| Value::Int(0));
            Dialect::of(&[[range, ttl, rest].as_slice(), &known].concat())
        };
        let (none, ok) = (|| Value::Int(-2), || Value::Okay);
        assert_eq!(answers(ok(), none(), ok()), Dialect::Ranges);
        assert_eq!(answers(ok(), error("-MOVED 1 a:1\r\n"), ok()), Dialect::Ranges);
        assert_eq!(answers(ok(), Value::Int(-1), ok()), Dialect::Millis);
        assert_eq!(answers(unknown(), none(), ok()), Dialect::Millis);
        assert_eq!(answers(error("-NOPERM no\r\n"), none(), ok()), Dialect::Millis);
        assert_eq!(answers(ok(), none(), unknown()), Dialect::Seconds);
    }

    #[test]
    fn s5_whole_seconds_last_no_shorter_than_was_asked_for() {
        let time = Duration::from_millis;
        let seconds = Dialect::Seconds;
        assert_eq!(text(&seconds.set("k", "v", Some(time(1_500)))), "SETEX k 3 v");
        assert_eq!(text(&seconds.set("k", "v", Some(time(2_000)))), "SETEX k 3 v");
        assert_eq!(text(&seconds.expire("k", time(100))), "EXPIRE k 2");
        assert_eq!(seconds.read_left(3), Some(time(2_000)));
        assert_eq!(seconds.read_left(-1), None);
        assert_eq!(text(&Dialect::Millis.set("k", "v", Some(time(1_500)))), "SET k v PX 1500");
    }
}
