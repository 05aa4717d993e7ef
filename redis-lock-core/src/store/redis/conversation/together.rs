//! Which commands can be bundled in one call, and what its reply says of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::Send;
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

impl From<Answer> for BundledAnswer {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
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

    /// Its place among the sorts of bundles.
    pub(super) fn sort(&self) -> usize {
        match self {
            Self::Renewals(_) => 0,
            Self::Looks { .. } => 1,
        }
    }

    /// The most commands in a bundle. More renewals would save nothing, and delay other
    /// commands; a call for looks costs the server as much as a hundred of them, however many there are.
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Renewals(_) => 64,
            Self::Looks { .. } => 256,
        }
    }

    /// The bytes that a command adds to its bundle.
    pub(super) fn length_of(&self, command: &Command) -> usize {
        let key = match self {
            Self::Renewals(_) => command.names.main().len(),
            Self::Looks { .. } => 0,
        };
        key + token(command).len()
    }

    pub(super) fn script(&self) -> &'static Lua {
        match self {
            Self::Renewals(_) => &RENEW_MANY,
            Self::Looks { .. } => &SHARED_STAY,
        }
    }

    /// Sends `name script` for these commands.
    pub(super) fn send(
        &self,
        (name, script): (&str, &str),
        questions: &Questions,
        context: &Context<'_>,
        out: Send<'_>,
    ) {
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
                cmd.arg(4);
                if let Some((_, Command { names, .. })) = questions.first() {
                    cmd.arg(names.main())
                        .arg(names.queue())
                        .arg(names.waiters())
                        .arg(names.limit());
                }
                cmd.arg(kind.traits().mode).arg(kind.limit().unwrap_or(0));
                cmd.arg(millis(*place)).arg(&*context.channel.name());
            }
        }
        for (_, command) in questions {
            cmd.arg(token(command));
        }
        out.send(cmd);
    }

    /// What the reply says of each of `count` commands; `None` when it is malformed.
    pub(super) fn read(&self, value: &Value, count: usize) -> Option<BundledAnswers> {
        use BundledAnswer::AskAlone;
        let Value::Array(items) = value else { return None };
        match self {
            Self::Renewals(_) => {
                let renewed = |waited_for| Answer::Renewed { longer: None, waited_for }.into();
                numbered(items, count, renewed(false), (AskAlone, renewed(true)))
            }
            Self::Looks { .. } if items.is_empty() => {
                Some(BundledAnswers { plain: AskAlone, odd: BTreeMap::new() })
            }
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
                let (far, near) = (Answer::Busy(far).into(), Answer::Busy(near).into());
                numbered(odd, count, far, (AskAlone, near))
            }
        }
    }
}

/// What the reply says of each command of a bundle.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct BundledAnswers {
    plain: BundledAnswer,
    /// Of these commands it says something else.
    odd: BTreeMap<usize, BundledAnswer>,
}

impl BundledAnswers {
    /// What it says of the command at this place of the bundle.
    pub(super) fn of(&self, place: usize) -> BundledAnswer {
        self.odd.get(&place).unwrap_or(&self.plain).clone()
    }
}

/// The reply lists the commands that differ from `plain`: the number of one of which `odd.0` is true, or
/// its negative for `odd.1`.
fn numbered(
    items: &[Value],
    count: usize,
    plain: BundledAnswer,
    (positive, negative): (BundledAnswer, BundledAnswer),
) -> Option<BundledAnswers> {
    let mut odd = BTreeMap::new();
    for number in items {
        let Value::Int(number) = number else { return None };
        let place = usize::try_from(number.unsigned_abs()).ok()?.checked_sub(1)?;
        let answer = if *number > 0 { &positive } else { &negative };
        odd.insert(place, answer.clone());
    }
    let is_within = odd.last_key_value().is_none_or(|(last, _)| *last < count);
    is_within.then_some(BundledAnswers { plain, odd })
}

fn token(command: &Command) -> &str {
    command.verb.token().map_or("", |token| token)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
