//! Which commands can be bundled in one call, and what its reply says of each.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::domain::kind::Kind;
use crate::store::redis::encode::Context;
use crate::store::redis::scripts::{Lua, RENEW_MANY, SHARED_STAY};
use crate::store::{Acquire, Answer, Blocker, Command, Verb};

/// Commands with equal values can be bundled.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Together {
    /// Renewals of mutexes, whose leases are of the same length.
    Renewals(Duration),
    /// Looks of waiters for one lock that several can hold, whose places last equally long.
    Looks { main: Arc<str>, kind: Kind, place: Duration },
}

/// What the reply says of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BundledAnswer {
    Answer(Answer),
    AskAlone,
}

type Questions = [(u64, Command)];

impl Together {
    /// `None` for a command that is sent by itself.
    pub(super) fn of(command: &Command) -> Option<Self> {
        match &command.verb {
            Verb::Renew { ttl: Some(ttl), .. } if command.kind == Kind::Mutex => {
                Some(Self::Renewals(*ttl))
            }
            Verb::Acquire(Acquire { stays: true, queue: Some(place), .. }) => {
                command.kind.traits().mode?;
                let (main, kind) = (command.names.shared_main(), command.kind);
                Some(Self::Looks { main, kind, place: *place })
            }
            _ => None,
        }
    }

    pub(super) fn is_renewal(&self) -> bool {
        matches!(self, Self::Renewals(_))
    }

    fn script(&self) -> &'static Lua {
        if self.is_renewal() { &RENEW_MANY } else { &SHARED_STAY }
    }

    pub(super) fn by_hash(&self, questions: &Questions, context: &Context<'_>) -> Cmd {
        self.form("EVALSHA", &self.script().hash, questions, context)
    }

    pub(super) fn in_full(&self, questions: &Questions, context: &Context<'_>) -> Cmd {
        self.form("EVAL", &self.script().code, questions, context)
    }

    fn form(&self, name: &str, script: &str, questions: &Questions, context: &Context<'_>) -> Cmd {
        let mut cmd = redis::cmd(name);
        cmd.arg(script);
        match self {
            Self::Renewals(ttl) => {
                cmd.arg(questions.len());
                for (_, command) in questions {
                    cmd.arg(command.names.main());
                }
                cmd.arg(millis(*ttl));
            }
            Self::Looks { kind, place, .. } => {
                cmd.arg(4 + questions.len());
                if let Some((_, Command { names, .. })) = questions.first() {
                    cmd.arg(names.main())
                        .arg(names.queue())
                        .arg(names.waiters())
                        .arg(names.limit());
                }
                for (_, command) in questions {
                    cmd.arg(command.names.tombstone(token(command)));
                }
                cmd.arg(kind.traits().mode).arg(kind.limit().unwrap_or(0));
                cmd.arg(millis(*place)).arg(&*context.channel.name());
            }
        }
        for (_, command) in questions {
            cmd.arg(token(command));
        }
        cmd
    }

    /// What the reply says of each of `count` commands; `None` when it is malformed.
    pub(super) fn read(&self, value: &Value, count: usize) -> Option<Vec<BundledAnswer>> {
        let Value::Array(items) = value else { return None };
        match self {
            Self::Renewals(_) => {
                let renewed = |waited_for| Answer::Renewed { longer: None, waited_for };
                numbered(items, count, &renewed(false), &renewed(true))
            }
            Self::Looks { .. } if items.is_empty() => Some(vec![BundledAnswer::AskAlone; count]),
            Self::Looks { .. } => {
                let [Value::Int(left), holder, Value::Int(_), Value::Array(odd)] = items.as_slice()
                else {
                    return None;
                };
                let Value::BulkString(holder) = holder else { return None };
                let near = Blocker {
                    value: Some(String::from_utf8_lossy(holder).into_owned()),
                    ttl: Some(Duration::from_millis(u64::try_from(*left).ok()?)),
                    queued: true,
                    ..Blocker::unknown()
                };
                let far = Blocker { is_far: true, ..near.clone() };
                numbered(odd, count, &Answer::Busy(far), &Answer::Busy(near))
            }
        }
    }
}

/// The reply lists the commands that differ from `plain`: the number of a command that has to be
/// sent by itself, or its negative for `other`.
fn numbered(
    odd: &[Value],
    count: usize,
    plain: &Answer,
    other: &Answer,
) -> Option<Vec<BundledAnswer>> {
    let mut answers = vec![BundledAnswer::Answer(plain.clone()); count];
    for number in odd {
        let Value::Int(number) = number else { return None };
        let place = usize::try_from(number.unsigned_abs()).ok()?.checked_sub(1)?;
        *answers.get_mut(place)? = if *number > 0 {
            BundledAnswer::AskAlone
        } else {
            BundledAnswer::Answer(other.clone())
        };
    }
    Some(answers)
}

fn token(command: &Command) -> &str {
    command.verb.token().map_or("", |token| token)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
