//! Decodes the server's replies.

mod said;
#[cfg(test)]
mod tests;

pub(crate) use said::said_by_driver;

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, ServerError, Value};

use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::{Family, Kind};
use crate::domain::label::{harmless, text_or_hex};
use crate::domain::lease::{LARGEST_FENCE, read_fence};
use crate::domain::status::LockKind;
use crate::domain::value::StoredValue;
use crate::store::{Answer, Blocker, Command, ServerView, Verb};
use crate::{BackendErrorKind, Token};
use said::said_by_server;

/// The most characters of a server's text in an error of ours.
const MOST_DETAIL: usize = 300;

/// The most bytes of a server's error that are kept as the driver reports it.
const MOST_SOURCE: usize = 1_000;

/// The answer of a plain command; `None` when only the script can find out more.
pub(super) fn plain(verb: &Verb, value: Value) -> Result<Option<Answer>, Fault> {
    Ok(Some(match (verb, value) {
        // The key has a value of another type by now; the script answers that without an error.
        (Verb::Release { .. }, Value::ServerError(error)) if code_of(&error) == "WRONGTYPE" => {
            return Ok(None);
        }
        (Verb::Fetch, Value::ServerError(error)) if code_of(&error) == "WRONGTYPE" => {
            Answer::Value(None)
        }
        // Another program's value says nothing of calls.
        (Verb::Newer { .. }, Value::ServerError(error)) if code_of(&error) == "WRONGTYPE" => {
            Answer::Done
        }
        (_, Value::ServerError(error)) => return Err(refusal(&error)),
        (Verb::Fetch, Value::BulkString(bytes)) => {
            Answer::Value(String::from_utf8(bytes).ok().map(StoredValue::new))
        }
        (Verb::Take { .. }, Value::Okay) => Answer::Held { fence: None, slot: None },
        (Verb::Take { .. }, Value::Nil) => Answer::Busy(Blocker::unknown()),
        (Verb::Release { .. }, Value::Int(0)) => return Ok(None),
        (Verb::Newer { token }, Value::Array(items)) => {
            let last =
                items.first().and_then(text).filter(|last| Token::from_wire(last).is_newest());
            match last.is_some_and(|last| last != **token) {
                true => Answer::Superseded { held: true },
                false => Answer::Done,
            }
        }
        (Verb::Why { .. }, tombstone @ (Value::Nil | Value::BulkString(_) | Value::Array(_))) => {
            why(Answer::Gone { by: None, because: None }, &tombstone)
        }
        (Verb::Release { .. }, Value::Int(1))
        | (Verb::InUse { .. }, Value::Int(_))
        | (Verb::Probe, Value::Nil | Value::Okay)
        | (Verb::Ping, Value::SimpleString(_)) => Answer::Done,
        (Verb::Scan { .. }, Value::Array(items)) => {
            return page(&items).map(Some).ok_or_else(|| nonsense(&Value::Array(items)));
        }
        (_, value) => return Err(nonsense(&value)),
    }))
}

/// Whether the server does not know the script that it was asked to run.
pub(super) fn is_forgotten(value: &Value) -> bool {
    has_code(value, "NOSCRIPT")
}

/// Whether the server has no scripting, or denies it to this user.
pub(super) fn denies_scripts(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    let denied = denied_command(error).unwrap_or_default().to_ascii_lowercase();
    denied.starts_with("eval")
}

/// The command that the server does not know, or denies to this user. Redis 5.0 to 6.2 quote it with
/// backticks, and what follows are its arguments.
fn denied_command(error: &ServerError) -> Option<&str> {
    let detail = error.details()?;
    let (_, named) = match error.code() {
        // The name of the user may come before it.
        "NOPERM" => detail.rsplit_once("to run the ")?,
        "ERR" => detail.split_once("unknown command ")?,
        _ => return None,
    };
    let quote = named.chars().next().filter(|first| matches!(first, '\'' | '`'))?;
    named.split(quote).nth(1)
}

/// Whether the server is not a primary, or no longer is.
pub(super) fn is_demoted(value: &Value) -> bool {
    has_code(value, "READONLY")
}

/// Whether the keys of a command hash to several slots, which a server in cluster mode refuses.
pub(super) fn crosses_slots(value: &Value) -> bool {
    has_code(value, "CROSSSLOT")
}

/// Whether a node refuses a command because only some of its keys have moved.
pub(super) fn is_half_moved(value: &Value) -> bool {
    has_code(value, "TRYAGAIN")
}

/// The answer of a script; `None` when the server has forgotten it.
pub(super) fn script(verb: &Verb, value: Value) -> Option<Result<Answer, Fault>> {
    let items = match value {
        Value::ServerError(error) if code_of(&error) == "NOSCRIPT" => return None,
        Value::ServerError(error) => return Some(Err(refusal(&error))),
        // The usual answer to a release or a renewal, in its shortest form.
        Value::Int(1) => return Some(Ok(done(verb, &[]))),
        Value::Array(items) => items,
        other => return Some(Err(nonsense(&other))),
    };
    if let Verb::Look = verb {
        return Some(server_view(&items).ok_or_else(|| nonsense(&Value::Array(items))));
    }
    let code = integer(items.first());
    let answer = match (verb, code) {
        (Verb::Acquire(_), Some(1)) => Ok(Answer::Held {
            fence: items.get(1).and_then(text).and_then(|number| read_fence(&number)),
            slot: slot(items.get(3)),
        }),
        (Verb::Acquire(_), Some(-6)) => {
            Ok(Answer::Superseded { held: integer(items.get(1)) == Some(1) })
        }
        (Verb::Acquire(_), Some(-5)) => Ok(Answer::Crowded {
            waiting: integer(items.get(1))
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or_default(),
            holder: items.get(2).and_then(text),
            left: integer(items.get(3)).and_then(left),
        }),
        (Verb::Acquire(terms), Some(0)) => Ok(Answer::Busy(Blocker {
            ttl: integer(items.get(1)).and_then(left),
            value: items.get(2).and_then(text),
            queued: integer(items.get(3)) == Some(1),
            repaired: integer(items.get(4)) == Some(1),
            asked: terms.ask.is_some() && integer(items.get(5)) == Some(1),
        })),
        (Verb::Acquire(_), Some(-7)) => {
            Ok(Answer::Shared(StoredValue::new(items.get(1).and_then(text).unwrap_or_default())))
        }
        (Verb::Acquire(_), Some(-2)) => Ok(Answer::Tombstone),
        (Verb::Acquire(_), Some(-4)) => Err(other_kind(items.get(1).and_then(text).as_deref())),
        (Verb::Acquire(_), Some(-3)) => Err(orphan(items.get(1).and_then(text).as_deref())),
        (_, Some(1)) => Ok(done(verb, &items)),
        (Verb::Force { .. }, Some(0)) => Ok(Answer::Gone { by: None, because: None }),
        (_, Some(0)) => {
            let because = items.get(1).and_then(reason);
            Ok(Answer::Gone { by: None, because })
        }
        (_, Some(-1)) => Ok(Answer::Gone { by: items.get(1).and_then(text), because: None }),
        _ => Err(nonsense(&Value::Array(items))),
    };
    Some(answer)
}

/// The answer of a command that was executed.
fn done(verb: &Verb, items: &[Value]) -> Answer {
    if !matches!(verb, Verb::Renew { .. }) {
        return Answer::Done;
    }
    let longer = match integer(items.get(1)) {
        None | Some(0) => None,
        Some(millis) => Some(left(millis).unwrap_or(Duration::MAX)),
    };
    let waited_for = integer(items.get(2)) == Some(1);
    Answer::Renewed { longer, waited_for, slot: slot(items.get(3)) }
}

/// The command that asks why a lock is gone, when the answer doesn't say: the scripts that renew do not
/// declare the tombstone among their keys.
pub(super) fn asks_why(command: &Command, answer: &Answer) -> Option<Command> {
    let asks = matches!(command.verb, Verb::Renew { .. } | Verb::Keep { .. } | Verb::Check { .. });
    asks.then(|| ask_why(command, answer)).flatten()
}

/// The same where only the lock was read.
pub(super) fn ask_why(command: &Command, answer: &Answer) -> Option<Command> {
    let token = command.verb.token()?;
    let unexplained = matches!(answer, Answer::Gone { because: None, .. });
    let verb = Verb::Why { token: Arc::clone(token) };
    unexplained.then(|| Command { verb, ..command.clone() })
}

/// Adds the reason from a tombstone. The lock may have been granted to the next waiter already, so
/// the reason says more than its present holder.
pub(super) fn why(gone: Answer, value: &Value) -> Answer {
    let reason = match value {
        Value::Array(tombstones) => tombstones.iter().find_map(reason),
        tombstone => reason(tombstone),
    };
    match reason {
        Some(because) => Answer::Gone { by: None, because: Some(because) },
        None => gone,
    }
}

fn reason(tombstone: &Value) -> Option<String> {
    text(tombstone).filter(|reason| !reason.is_empty())
}

/// The keys of one `SCAN`. Keys that are not UTF-8 can't be ours.
fn page(items: &[Value]) -> Option<Answer> {
    let [cursor, Value::Array(found)] = items else { return None };
    let next: u64 = text(cursor)?.parse().ok()?;
    let key = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    let keys = found.iter().filter_map(key).collect();
    Some(Answer::Keys { keys, next: (next != 0).then_some(next) })
}

/// The answer of `look.lua`.
fn server_view(items: &[Value]) -> Option<Answer> {
    let [kind, Value::Array(holders), Value::Array(waiters), fence, limit, more @ ..] = items
    else {
        return None;
    };
    let [more_holders, more_waiters, foreign] = more else { return None };
    let fence = text(fence)?;
    let fence = fence.split_once(' ').and_then(|(last, owner)| Some((read_fence(last)?, owner)));
    let left = |value: &Value| integer(Some(value)).and_then(left);
    let mut server_view = match (text(kind)?.as_str(), holders.as_slice()) {
        ("none", _) => ServerView::of_nobody(LockKind::Free),
        ("string", [value, ttl]) => ServerView::of_value(&text(value)?, left(ttl), fence),
        ("zset", members) => {
            let member = |shown: &[Value]| {
                let [member, ttl, its_slot] = shown else { return None };
                Some((text(member)?, left(ttl)?, slot(Some(its_slot))))
            };
            let members: Vec<_> = members.chunks(3).filter_map(member).collect();
            let limit = integer(Some(limit)).and_then(|limit| u32::try_from(limit).ok());
            ServerView::of_members(&members, limit.unwrap_or(0), fence)
        }
        _ => ServerView::of_nobody(LockKind::Foreign),
    };
    let token = |value| text(value).map(|value| Token::from_wire(&value));
    server_view.waiters = waiters.iter().filter_map(token).collect();
    let count = |value| integer(Some(value)).and_then(|count| usize::try_from(count).ok());
    server_view.more_holders = count(more_holders)?;
    server_view.more_waiters = count(more_waiters)?;
    if let Some(foreign) = reason(foreign) {
        server_view = server_view.of_another(foreign.into());
    }
    Some(Answer::Seen(Box::new(server_view)))
}

/// The limit that another holder of a permit asked for, if it differs from ours.
pub(super) fn other_limit(value: &Value) -> Option<u32> {
    let Value::Array(items) = value else { return None };
    let at = match integer(items.first()) {
        Some(1) => 2,
        Some(0) => 5,
        _ => return None,
    };
    let other = u32::try_from(integer(items.get(at))?).ok()?;
    (other > 0).then_some(other)
}

fn slot(value: Option<&Value>) -> Option<u32> {
    integer(value).and_then(|slot| u32::try_from(slot).ok())
}

fn integer(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    }
}

/// A text, in the form of either version of the protocol.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(text_or_hex(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn orphan(value: Option<&str>) -> Fault {
    let value = harmless(value.unwrap_or_default(), 80);
    let what = format!(
        "another program has set its key to `{value}` without a ttl, so it may stay for ever; end it with \
         `force_release` (in a shell: redis-lock release), give it a ttl with `repair_orphan`, or use \
         another key or namespace"
    );
    Fault::new(FaultClass::Permanent, what).of(BackendErrorKind::Foreign)
}

/// The key has something other than the kind of lock that was asked for.
pub(super) fn other_kind(kind: Option<&str>) -> Fault {
    let kind = kind.unwrap_or_default();
    let of_mode = || Kind::of_mode(kind, 0).map(Kind::family);
    let Some(family) = (kind == Kind::Mutex.name()).then_some(Family::Mutex).or_else(of_mode)
    else {
        let kind = harmless(kind, 80);
        let what = format!("the key has a {kind} of another program; use another key or namespace");
        return Fault::new(FaultClass::Permanent, what).of(BackendErrorKind::Foreign);
    };
    Fault::new(FaultClass::Misuse, family.in_use())
}

fn nonsense(value: &Value) -> Fault {
    let value = harmless(format_args!("{value:?}"), 80);
    let what = format!("no lock server answers that: {value}; is there a proxy in between?");
    Fault::new(FaultClass::Unknown, what).of(BackendErrorKind::Protocol)
}

/// An error that the server gave as its answer: the command was not executed.
pub(super) fn refusal(error: &ServerError) -> Fault {
    let detail = error.details().unwrap_or_default();
    let code = code_of(error);
    let (class, advice) = classify(code, detail);
    let shown = harmless(said_by_server(code, detail), MOST_DETAIL);
    let what = format!("the server refused: {code} {shown}{advice}");
    let fault = Fault::new(class, what).of(kind_of(code));
    match detail.len() {
        ..=MOST_SOURCE => fault.because(RedisError::from(error.clone())),
        _ => fault,
    }
}

/// The codes that are distinguished.
const CODES: [&str; 16] = [
    "WRONGTYPE",
    "NOSCRIPT",
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "LOADING",
    "MASTERDOWN",
    "NOPERM",
    "NOAUTH",
    "WRONGPASS",
    "BUSY",
    "TRYAGAIN",
    "CROSSSLOT",
    "CLUSTERDOWN",
    "UNKILLABLE",
];

/// The error's code.
pub(super) fn code_of(error: &ServerError) -> &str {
    inner_code(error.code(), error.details().unwrap_or_default())
}

fn has_code(value: &Value, code: &str) -> bool {
    matches!(value, Value::ServerError(error) if code_of(error) == code)
}

/// Servers before 7 wrap errors of scripts in an `ERR`, some with a dash before the code.
fn inner_code<'a>(code: &'a str, detail: &'a str) -> &'a str {
    if detail.contains("The user executing the script can't") || detail.contains("ACL failure") {
        return "NOPERM";
    }
    let wrapped =
        detail.starts_with("Error running script") || detail.starts_with("Error compiling");
    if code == "ERR" && wrapped { code_in(detail).unwrap_or(code) } else { code }
}

/// The first code that a text names.
fn code_in(text: &str) -> Option<&'static str> {
    let known = |word: &str| CODES.into_iter().find(|code| *code == word.trim_start_matches('-'));
    text.split(|c: char| c.is_whitespace() || c == ':' || c == '`').find_map(known)
}

fn kind_of(code: &str) -> BackendErrorKind {
    match code {
        "OOM" => BackendErrorKind::Full,
        "NOREPLICAS" => BackendErrorKind::NotReplicated,
        "READONLY" => BackendErrorKind::ReadOnly,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => BackendErrorKind::Rights,
        "WRONGTYPE" => BackendErrorKind::Foreign,
        _ => BackendErrorKind::Refused,
    }
}

fn classify(code: &str, detail: &str) -> (FaultClass, &'static str) {
    match code {
        "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" => (FaultClass::Refused, ""),
        "LOADING" => (FaultClass::Refused, "; the server has just started, and reads its data"),
        "MASTERDOWN" => (FaultClass::Refused, "; this server is a replica that lost its primary"),
        // A slot comes back after a migration or a repair, so it is tried again.
        "TRYAGAIN" => (
            FaultClass::Moving,
            "; the slot of this key is being moved to another node, and its keys are in two places",
        ),
        "MOVED" | "ASK" => (
            FaultClass::Refused,
            "; another node of a cluster has the slot of this key: connect to several nodes by \
             `Locks::builder().cluster(…)` or a URL like redis-cluster://host:port,host:port",
        ),
        "CLUSTERDOWN" => (
            FaultClass::Refused,
            "; the cluster does not serve this slot, `CLUSTER INFO` and `CLUSTER SLOTS` tell more",
        ),
        "READONLY" => (FaultClass::Refused, "; this server is a replica, name the primary"),
        "WRONGTYPE" => (
            FaultClass::Permanent,
            "; the key has data of another program, use another key or namespace",
        ),
        "NOAUTH" => (
            FaultClass::Permanent,
            "; the server wants a password: put it into the URL, as in redis://:password@host or \
             redis://user:password@host",
        ),
        "WRONGPASS" => (FaultClass::Permanent, WRONG_PASSWORD),
        "NOPERM" => (
            FaultClass::Permanent,
            "; https://docs.rs/redis-locks/latest/redis_locks/guide/protocol lists the needed rights",
        ),
        "ERR" if detail.contains("max number of clients") => (FaultClass::Refused, ""),
        _ => (FaultClass::Permanent, ""),
    }
}

/// An error of the connection: what was sent may have been executed.
pub(super) fn broken(error: RedisError) -> Fault {
    let what = format!("the connection broke: {}", harmless(&error, MOST_DETAIL));
    Fault::new(FaultClass::Unknown, what).because(error)
}

/// An error while connecting: nothing was sent.
pub(super) fn unreachable(error: RedisError) -> Fault {
    let text = match error.kind() {
        redis::ErrorKind::Parse => {
            "what answers at this address does not speak the Redis protocol \
             (RESP); is the port right?"
                .into()
        }
        _ => said_by_driver(&error, MOST_DETAIL),
    };
    let (class, advice) = classify_connecting(&error, &text);
    let kind = match error.code().or_else(|| code_in(&text)) {
        _ if ["password", "rights"].iter().any(|word| advice.contains(word)) => {
            BackendErrorKind::Rights
        }
        _ if error.is_io_error() => BackendErrorKind::Unreachable,
        Some(code) => kind_of(code),
        None => BackendErrorKind::Protocol,
    };
    Fault::new(class, format!("the server can't be used: {text}{advice}")).of(kind).because(error)
}

/// Whether connecting again can help, and advice on what would.
fn classify_connecting(error: &RedisError, text: &str) -> (FaultClass, &'static str) {
    use redis::ErrorKind::AuthenticationFailed;
    match error.code().or_else(|| code_in(text)).unwrap_or_default() {
        _ if error.kind() == AuthenticationFailed => (FaultClass::Permanent, WRONG_PASSWORD),
        // A server that wants a password refuses `SELECT` first, and the driver reports that without a
        // code.
        _ if text.contains("Authentication required") => classify("NOAUTH", ""),
        _ if text.contains("no permissions") => classify("NOPERM", ""),
        _ if text.contains("DB index") || text.contains("switch database") => (
            FaultClass::Permanent,
            "; the number after the last slash of the URL is the database, and this server has none \
             of that number",
        ),
        code if CODES.contains(&code) => classify(code, ""),
        _ => (FaultClass::Refused, ""),
    }
}

const WRONG_PASSWORD: &str = "; check user and password in the URL: redis://user:password@host";

/// The server's clock, from the seconds and microseconds that it answers to `TIME`. Another program, or a
/// clock, may have set its times to anything, so none may overflow.
pub(super) fn time((seconds, micros): (u64, u64)) -> Option<Moment> {
    let time = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    (time < LARGEST_FENCE).then(|| Moment::START.after(Duration::from_micros(time)))
}

/// The rest of a key's or a place's time; `None` if it has no end. It is at most 285 years.
pub(super) fn left(millis: i64) -> Option<Duration> {
    u64::try_from(millis)
        .ok()
        .map(|millis| Duration::from_millis(millis.min(LARGEST_FENCE / 1_000)))
}
