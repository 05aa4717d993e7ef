//! Which commands can be bundled in one call, and what its reply says of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::Send;
use crate::domain::kind::Kind;
use crate::store::redis::encode::Context;
use crate::store::redis::scripts::{
    Lua, RELEASE_ACROSS, RELEASE_MANY, RENEW_ACROSS, RENEW_MANY, SHARED_STAY,
};
use crate::store::{Acquire, Answer, Blocker, Command, Verb};

/// Commands with equal values can be bundled.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Together {
    /// Renewals of mutexes, whose leases are of the same length.
    Renewals(Duration),
    /// Releases of mutexes that nobody is known to wait for.
    Releases,
    /// Looks of waiters for one lock that several can hold, whose places last equally long.
    Looks { main: Arc<str>, kind: Kind, place: Duration },
}

/// How a bundle names the keys of its locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Naming {
    /// As keys of the script.
    Keys,
    /// As arguments, since they are in several slots. A script uses what of them its node has.
    Arguments,
}

/// What the reply says of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BundledAnswer {
    Answer(Answer),
    AskAlone,
    /// The key alone does not say what became of the lock.
    AskScript,
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
            Verb::Release { waited_for: false, keep: None, tombstone: None, .. } => {
                (command.kind == Kind::Mutex).then_some(Self::Releases)
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
            Self::Releases => 1,
            Self::Looks { .. } => 2,
        }
    }

    /// The most commands in a bundle. More renewals or releases would save nothing, and delay other
    /// commands; a call for looks costs the server as much as a hundred of them, however many there are.
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Renewals(_) | Self::Releases => 64,
            Self::Looks { .. } => 256,
        }
    }

    /// The bytes that a command adds to its bundle.
    pub(super) fn length_of(&self, command: &Command) -> usize {
        let key = match self {
            Self::Renewals(_) | Self::Releases => command.names.main().len(),
            Self::Looks { .. } => 0,
        };
        key + token(command).len()
    }

    /// `None` when such commands have no script that names keys this way.
    pub(super) fn script(&self, naming: Naming) -> Option<&'static Lua> {
        Some(match (self, naming) {
            (Self::Renewals(_), Naming::Keys) => &RENEW_MANY,
            (Self::Renewals(_), Naming::Arguments) => &RENEW_ACROSS,
            (Self::Releases, Naming::Keys) => &RELEASE_MANY,
            (Self::Releases, Naming::Arguments) => &RELEASE_ACROSS,
            (Self::Looks { .. }, Naming::Keys) => &SHARED_STAY,
            (Self::Looks { .. }, Naming::Arguments) => return None,
        })
    }

    /// Sends `name script` for these commands.
    pub(super) fn send(
        &self,
        (name, script): (&str, &str),
        naming: Naming,
        questions: &Questions,
        context: &Context<'_>,
        out: Send<'_>,
    ) {
        match self {
            Self::Renewals(ttl) => {
                let ttl = millis(*ttl).to_string();
                send_locks((name, script), naming, questions, &[&ttl], out);
            }
            Self::Releases => send_locks((name, script), naming, questions, &[], out),
            Self::Looks { kind, place, .. } => {
                let mut cmd = redis::cmd(name);
                cmd.arg(script).arg(4);
                if let Some((_, Command { names, .. })) = questions.first() {
                    cmd.arg(names.main())
                        .arg(names.queue())
                        .arg(names.waiters())
                        .arg(names.limit());
                }
                cmd.arg(kind.traits().mode).arg(kind.limit().unwrap_or(0));
                cmd.arg(millis(*place)).arg(&*context.channel.name());
                for (_, command) in questions {
                    cmd.arg(token(command));
                }
                out.send(cmd);
            }
        }
    }

    /// Takes out of the reply that the user lacks a command that only the bundle needs, if it says so.
    pub(super) fn says_denied(&self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) if *self == Self::Releases => {
                items.pop_if(|last| *last == Value::Int(0)).is_some()
            }
            _ => false,
        }
    }

    /// What the reply says of each of `count` commands; `None` when it is malformed.
    pub(super) fn read(&self, value: &Value, count: usize) -> Option<BundledAnswers> {
        use BundledAnswer::{AskAlone, AskScript};
        let Value::Array(items) = value else { return None };
        match self {
            Self::Renewals(_) => {
                let renewed = |waited_for| Answer::Renewed { longer: None, waited_for }.into();
                numbered(items, count, renewed(false), (AskAlone, renewed(true)))
            }
            Self::Releases => numbered(items, count, Answer::Done.into(), (AskScript, AskAlone)),
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

/// Sends a script call with the key of each lock, these arguments, and each token.
fn send_locks(
    call: (&str, &str),
    naming: Naming,
    questions: &Questions,
    arguments: &[&str],
    out: Send<'_>,
) {
    let mut digits = itoa::Buffer::new();
    let mut words = Vec::with_capacity(3 + arguments.len() + 2 * questions.len());
    let arguments = arguments.iter().map(|argument| argument.as_bytes());
    match naming {
        Naming::Keys => {
            let count = digits.format(questions.len());
            words.extend([call.0, call.1, count].map(str::as_bytes));
            words.extend(questions.iter().map(|(_, command)| command.names.main().as_bytes()));
            words.extend(arguments);
            words.extend(questions.iter().map(|(_, command)| token(command).as_bytes()));
        }
        Naming::Arguments => {
            words.extend([call.0, call.1, "0"].map(str::as_bytes));
            words.extend(arguments);
            for (_, command) in questions {
                words.extend([command.names.main(), token(command)].map(str::as_bytes));
            }
        }
    }
    out.send_words(&words);
}

fn token(command: &Command) -> &str {
    command.verb.token().map_or("", |token| token)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
