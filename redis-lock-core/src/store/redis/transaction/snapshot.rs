//! One lock, read from the server while its keys are watched.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Script, Value, from_redis_value};

use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::label::harmless;
use crate::domain::names::Names;
use crate::domain::status::LockKind;
use crate::domain::token::{MOST_TOKEN, Mark, WAITERS_MARK, cut};
use crate::store::memory::entry::{Entry, StoredWaiter, Tombstone};
use crate::store::memory::fences::{Last, odd};
use crate::store::memory::holders::StoredHolder;
use crate::store::redis::decode;
use crate::store::redis::dialect::{Dialect, MOST_READ, words};
use crate::store::wire::contained;
use crate::store::{Answer, MOST_SHOWN, ServerView};

/// The most bytes of another program's value that are shown.
const MOST_BYTES: usize = 200;

/// Which parts of a lock are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReadScope {
    pub(super) queue: bool,
    pub(super) fence: bool,
    /// Whether a fencing counter with an invalid value counts as absent.
    pub(super) lenient: bool,
}

/// What stands at the key of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Nothing,
    Value {
        bytes: Vec<u8>,
        /// The same as text. What is no UTF-8 is replaced in it.
        text: String,
        /// `None` when it has no ttl.
        left: Option<Duration>,
    },
    /// A value of another type.
    Other,
}

/// One lock, as of one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) now: Moment,
    pub(super) lock: Standing,
    /// Tokens in the order of arrival, with their tickets; `None` when the server has no queue.
    pub(super) queue: Option<Vec<(String, f64)>>,
    /// The details of each waiter, by token.
    places: HashMap<String, String>,
    queue_left: Option<Duration>,
    pub(super) fence: Option<Last>,
    /// The reasons in the tombstones that were read.
    pub(super) tombstones: BTreeMap<Arc<str>, String>,
}

impl ReadScope {
    pub(super) fn reads(
        self,
        names: &Names,
        tombstones: &[Arc<str>],
        dialect: Dialect,
    ) -> Vec<Cmd> {
        let mut reads = vec![dialect.value(names.main()), dialect.left(names.main())];
        if self.queue {
            let mut queue = words(["ZRANGE", &names.queue()]);
            queue.arg(0).arg(-1).arg("WITHSCORES");
            reads.extend([
                queue,
                words(["HGETALL", &names.waiters()]),
                words(["PTTL", &names.queue()]),
            ]);
            reads.push(redis::cmd("TIME"));
        }
        if self.fence {
            reads.push(words(["GET", &names.fence()]));
        }
        reads.extend(tombstones.iter().map(|token| words(["GET", &names.tombstone(token)])));
        reads
    }
}

impl Snapshot {
    /// Reads the answers to the commands of a scope.
    pub(super) fn read(
        scope: ReadScope,
        tombstones: &[Arc<str>],
        dialect: Dialect,
        answers: &mut impl Iterator<Item = Value>,
    ) -> Result<Self, Fault> {
        contained(|| Self::parsed(scope, tombstones, dialect, answers))?
    }

    fn parsed(
        scope: ReadScope,
        tombstones: &[Arc<str>],
        dialect: Dialect,
        answers: &mut impl Iterator<Item = Value>,
    ) -> Result<Self, Fault> {
        let mut next = || answers.next().ok_or_else(|| nonsense("an answer is missing"));
        let lock = standing(next()?, next()?, dialect)?;
        let mut snapshot = Self {
            // Without a queue only distances count.
            now: Moment::START.after(Duration::from_secs(1)),
            lock,
            queue: None,
            places: HashMap::new(),
            queue_left: None,
            fence: None,
            tombstones: BTreeMap::new(),
        };
        if scope.queue {
            let (queue, places) = (tolerated(next()?)?, tolerated(next()?)?);
            snapshot.queue_left = decode::left(parsed(next()?)?);
            if let (Some(queue), Some(places)) = (queue, places) {
                snapshot.take_queue(queue, places)?;
            }
            snapshot.now =
                decode::time(parsed(next()?)?).ok_or_else(|| nonsense("of the clock"))?;
        }
        if scope.fence {
            snapshot.fence = counter(next()?, scope.lenient)?;
        }
        for token in tombstones {
            // A tombstone of any type refuses the token.
            let reason = match tolerated(next()?)? {
                Some(Value::Nil) => continue,
                Some(value) => parsed::<Vec<u8>>(value)?,
                None => Vec::new(),
            };
            let reason = String::from_utf8_lossy(&reason).into_owned();
            snapshot.tombstones.insert(Arc::clone(token), reason);
        }
        Ok(snapshot)
    }

    fn take_queue(&mut self, queue: Value, places: Value) -> Result<(), Fault> {
        // A token of ours is UTF-8.
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
        let queue: Vec<(Vec<u8>, f64)> = parsed(queue)?;
        let queue = queue.into_iter().filter_map(|(token, at)| Some((text(token)?, at)));
        self.queue = Some(queue.collect());
        let places: HashMap<Vec<u8>, Vec<u8>> = parsed(places)?;
        let places = places.into_iter().filter_map(|(token, at)| Some((text(token)?, text(at)?)));
        self.places = places.collect();
        Ok(())
    }

    /// The value at the key, if it is a string.
    pub(super) fn value(&self) -> Option<&str> {
        match &self.lock {
            Standing::Value { text, .. } => Some(text),
            Standing::Nothing | Standing::Other => None,
        }
    }

    /// The same with the mark that a client waits.
    pub(super) fn marked(&self) -> Option<Vec<u8>> {
        match &self.lock {
            Standing::Value { text, .. } if planted!(BytesMadeText) => {
                Some(format!("{text}{WAITERS_MARK}").into_bytes())
            }
            Standing::Value { bytes, .. } => {
                Some([bytes, WAITERS_MARK.to_string().as_bytes()].concat())
            }
            Standing::Nothing | Standing::Other => None,
        }
    }

    /// Whether the value at the key has no ttl, and is not meant to have none.
    pub(super) fn is_orphan(&self) -> bool {
        matches!(&self.lock, Standing::Value { text, left, .. } if is_orphan(text, *left))
    }

    /// The lock in the form of the model.
    pub(super) fn entry(&self) -> Entry {
        let waiter = |(token, _): &(String, f64)| {
            let (until, channel) = self.place(token).unwrap_or((Moment::START, "-"));
            let (token, manager) = (token.as_str().into(), channel.into());
            StoredWaiter { token, kind: Kind::Mutex, until, manager }
        };
        let queue: VecDeque<_> = self.queue.iter().flatten().map(waiter).collect();
        let queue_end = self.queue_left.filter(|_| !queue.is_empty());
        let tombstone =
            |reason: &String| Tombstone { reason: reason.as_str().into(), until: Moment::NEVER };
        Entry {
            holders: self.holder().into_iter().collect(),
            queue,
            queue_end: queue_end.map(|left| self.now.after(left)),
            fence: self.fence.clone(),
            tombstones: self
                .tombstones
                .iter()
                .map(|(token, why)| (Arc::clone(token), tombstone(why)))
                .collect(),
        }
    }

    fn holder(&self) -> Option<StoredHolder> {
        let Standing::Value { text, left, .. } = &self.lock else { return None };
        // A key that exists has some time left.
        let end =
            left.map_or(Moment::NEVER, |left| self.now.after(left.max(Duration::from_millis(1))));
        let (token, marked) = unmarked(text);
        Some(StoredHolder::of_mutex(token.into(), end, marked))
    }

    /// When the place of a token ends, and its manager's channel. `None` for waiters for a lock of
    /// another family, which find out by themselves that the families differ.
    fn place(&self, token: &str) -> Option<(Moment, &str)> {
        let (until, channel) = self.places.get(token)?.split_once(' ')?;
        let until = Duration::from_millis(until.parse().ok()?);
        Some((Moment::START.after(until), channel))
    }
}

/// Splits a value into the token and whether it has the mark that a client waits.
pub(super) fn unmarked(value: &str) -> (&str, bool) {
    match value.strip_suffix(WAITERS_MARK).filter(|_| is_ours(value)) {
        Some(token) => (token, true),
        None => (value, false),
    }
}

/// Whether a value with this rest of a ttl never goes away by itself, and is not meant to stand so.
fn is_orphan(value: &str, left: Option<Duration>) -> bool {
    left.is_none() && !(is_ours(value) && value.starts_with("rl1.n"))
}

/// Whether a value is a token of ours, with or without the mark, like `is_ours` in `common.lua`.
pub(super) fn is_ours(value: &str) -> bool {
    if value.len() > MOST_TOKEN {
        return false;
    }
    let value = value.strip_suffix(WAITERS_MARK).unwrap_or(value);
    let Some(rest) = value.strip_prefix("rl1.") else { return false };
    let mut parts = rest.strip_prefix('n').unwrap_or(rest).splitn(4, '.');
    let mut part = || parts.next();
    let (Some(digits), Some(manager), Some(since), Some(label)) = (part(), part(), part(), part())
    else {
        return false;
    };
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.len() == 32
        && hex(digits)
        && !manager.is_empty()
        && hex(since)
        && !label.contains(WAITERS_MARK)
}

fn standing(value: Value, left: Value, dialect: Dialect) -> Result<Standing, Fault> {
    let Some(value) = tolerated(value)? else { return Ok(Standing::Other) };
    let left: i64 = parsed(left)?;
    let bytes: Option<Vec<u8>> = parsed(value)?;
    Ok(match bytes {
        // Or the key expired between the two commands.
        None => Standing::Nothing,
        Some(_) if left == -2 => Standing::Nothing,
        Some(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Standing::Value { bytes, text, left: dialect.read_left(left) }
        }
    })
}

/// The fencing counter.
fn counter(value: Value, lenient: bool) -> Result<Option<Last>, Fault> {
    let text = if lenient { tolerated(value)?.unwrap_or(Value::Nil) } else { value };
    let Some(text) = parsed::<Option<Vec<u8>>>(text)? else { return Ok(None) };
    let last = std::str::from_utf8(&text).ok().and_then(Last::read);
    if last.is_none() && !lenient { Err(odd()) } else { Ok(last) }
}

/// The answer; `None` when the key has a value of another type.
fn tolerated(value: Value) -> Result<Option<Value>, Fault> {
    match value {
        Value::ServerError(error) if decode::code_of(&error) == "WRONGTYPE" => Ok(None),
        Value::ServerError(error) => Err(decode::refusal(&error)),
        value => Ok(Some(value)),
    }
}

fn parsed<T: FromRedisValue>(value: Value) -> Result<T, Fault> {
    match value {
        Value::ServerError(error) => Err(decode::refusal(&error)),
        value => from_redis_value(value).map_err(|error| nonsense(&harmless(error, 120))),
    }
}

fn nonsense(what: &str) -> Fault {
    let what = format!("no lock server answers that: {what}; is there a proxy in between?");
    Fault::new(FaultClass::Permanent, what)
}

/// A lock whose key has a string, or does not exist.
pub(super) fn seen(snapshot: &Snapshot) -> Answer {
    let fence = snapshot.fence.as_ref().map(Last::of);
    let mut view = match &snapshot.lock {
        Standing::Value { text, left, .. } => {
            let view = ServerView::of_value(shown(unmarked(text).0), *left, fence);
            if is_ours(text) { view } else { view.of_another(digest(text).into()) }
        }
        Standing::Nothing => ServerView::of_nobody(LockKind::Free),
        Standing::Other => ServerView::of_nobody(LockKind::Foreign),
    };
    let entry = snapshot.entry();
    let living = entry.queue.iter().take(MOST_SHOWN);
    let living = living.filter(|waiter| waiter.until > snapshot.now);
    view.waiters = living.map(|waiter| Token::from_wire(&waiter.token)).collect();
    view.more_waiters = entry.queue.len().saturating_sub(MOST_SHOWN);
    Answer::Seen(Box::new(view))
}

/// A lock that several can hold, from the members of its sorted set.
pub(super) fn seen_members(members: Value, now: Moment) -> Answer {
    let Ok(members) = from_redis_value::<Vec<(String, f64)>>(members) else {
        return Answer::Seen(Box::new(ServerView::of_nobody(LockKind::Foreign)));
    };
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
    let end = |at: f64| Moment::START.after(decode::left(at as i64).unwrap_or_default());
    let left = members.into_iter().map(|(member, at)| (member, end(at).since(now)));
    let living: Vec<_> = left.filter(|(_, left)| !left.is_zero()).collect();
    let more = living.len().saturating_sub(MOST_SHOWN);
    let mut view = ServerView::of_members(living.get(..MOST_SHOWN).unwrap_or(&living), 0, None);
    view.more_holders = more;
    Answer::Seen(Box::new(view))
}

/// The part of a value that is shown.
pub(super) fn shown(value: &str) -> &str {
    if is_ours(value) || Mark::read(value).is_some() { value } else { cut(value, MOST_BYTES) }
}

/// Identifies the value of another program, as `digest.lua` does for text.
pub(super) fn digest(value: &str) -> String {
    let named = format!("{} {}", cut(value, MOST_READ), value.len());
    Script::new(&named).get_hash().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_ours_is_recognised_as_the_scripts_do() {
        let digits = "0123456789abcdef0123456789abcdef";
        for (value, ours) in [
            (format!("rl1.{digits}.m.0."), true),
            (format!("rl1.n{digits}.m.0.host/1 a.b"), true),
            (format!("rl1.{digits}.m.0.{}", "x".repeat(300)), true),
            (format!("rl1.{digits}.m.0.{}", "x".repeat(400)), false),
            (format!("rl1.{digits}.m.0.x+"), true),
            (format!("rl1.{digits}.m.0.x++"), false),
            (format!("rl1.{digits}.m.0.a+b"), false),
            (format!("rl1.{digits}..0."), false),
            (format!("rl1.{digits}.m.."), false),
            (format!("rl1.{digits}.m.0"), false),
            ("rl1.abc.m.0.".into(), false),
            ("token".into(), false),
        ] {
            assert_eq!(is_ours(&value), ours, "{value}");
        }
        assert_eq!(unmarked("abc+"), ("abc+", false));
    }
}
