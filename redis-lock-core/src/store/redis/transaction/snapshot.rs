//! One lock, read from the server while its keys are watched.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Script, Value, from_redis_value};

use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::label::{harmless, text_or_hex};
use crate::domain::mark::Mark;
use crate::domain::names::Names;
use crate::domain::status::LockKind;
use crate::domain::token::{MOST_TOKEN, WAITERS_MARK, cut};
use crate::domain::value::StoredValue;
use crate::store::memory::entry::{Entry, Sharing, StoredWaiter, Tombstone};
use crate::store::memory::fences::{Last, odd};
use crate::store::memory::holders::StoredHolder;
use crate::store::redis::decode;
use crate::store::redis::dialect::{Dialect, MOST_READ, words};
use crate::store::wire::contained;
use crate::store::{Answer, Command, MOST_SHOWN, ServerView, Verb};

/// The most bytes of another program's value that are shown.
const MOST_BYTES: usize = 200;

/// What a command reads of its lock, and which keys must not change before the write.
#[expect(clippy::struct_excessive_bools, reason = "a list of what is read")]
#[derive(Clone, Debug)]
pub(super) struct ReadPlan {
    pub(super) watch: Vec<String>,
    queue: bool,
    /// Whether the newest calls are read.
    latest: bool,
    fence: bool,
    /// Whether to read if another program's value stands beside the lock.
    value: bool,
    /// Whether to read who is to have a value that is shared.
    shared: bool,
    /// Whether a fencing counter with an invalid value counts as absent.
    lenient: bool,
    /// The tokens whose tombstones are read.
    tombstones: Vec<Arc<str>>,
}

/// The value at the key of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Nothing,
    Value {
        bytes: Vec<u8>,
        /// The same as text. What is no UTF-8 is replaced in it.
        text: String,
    },
    /// A value of another type.
    Other,
}

/// One lock, as of one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) now: Moment,
    pub(super) lock: Standing,
    /// The lock in the form of the model.
    pub(super) entry: Entry,
    /// The ticket of the last waiter, 0 without one; `None` when the server has no queue.
    pub(super) last_ticket: Option<f64>,
    /// The ticket of the newest call, and that of its place in the queue, if it has one.
    pub(super) newest_tickets: (f64, Option<f64>),
}

impl ReadPlan {
    pub(super) fn of(command: &Command) -> Self {
        let names = &command.names;
        let (mut queue, mut latest, mut fence) = (true, false, false);
        let mut tombstones: Vec<Arc<str>> = command.verb.token().into_iter().cloned().collect();
        match &command.verb {
            Verb::Acquire(acquire) => {
                fence = acquire.fences > 0;
                latest = acquire.newest.is_some();
            }
            Verb::Newer { .. } => {
                (queue, latest) = (false, true);
                tombstones.clear();
            }
            // Unless the release writes a tombstone, an older one only says why the token has nothing.
            Verb::Release { tombstone, .. } => tombstones.retain(|_| tombstone.is_some()),
            Verb::Force { tokens, .. } => {
                tombstones = tokens.iter().map(|token| Arc::clone(token.wire())).collect();
            }
            Verb::Look => fence = true,
            Verb::Renew { .. } | Verb::Keep { .. } | Verb::Check { .. } => {
                // Nothing but the lock's own key: where its slot is being moved, a node answers only
                // for keys that it has.
                queue = false;
                tombstones.clear();
            }
            _ => queue = false,
        }
        let lenient = matches!(command.verb, Verb::Look | Verb::Newer { .. });
        let mut watch = vec![names.main().to_owned()];
        if !matches!(command.verb, Verb::Force { .. }) {
            watch.extend(tombstones.iter().map(|token| names.tombstone(token)));
        }
        let value = match &command.verb {
            Verb::Release { keep, .. } => keep.as_ref().is_some_and(|keep| keep.value.is_some()),
            Verb::Force { foreign, .. } => foreign.is_some(),
            _ => false,
        };
        watch.extend(fence.then(|| names.fence()));
        watch.extend(value.then(|| names.value()));
        let shared = match &command.verb {
            Verb::Release { share, .. } => share.is_some(),
            Verb::Acquire(acquire) => acquire.share,
            _ => false,
        };
        watch.extend(shared.then(|| names.shared()));
        if queue {
            watch.extend([names.queue(), names.waiters()]);
        }
        watch.extend(latest.then(|| names.latest()));
        // What only looks writes nothing.
        watch.retain(|_| !lenient);
        Self { watch, queue, latest, fence, value, shared, lenient, tombstones }
    }

    pub(super) fn reads(&self, names: &Names, dialect: Dialect) -> Vec<Cmd> {
        let mut reads = vec![dialect.value(names.main()), words(["PTTL", names.main()])];
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
        if self.latest {
            reads.push(words(["ZRANGE", &names.latest(), "0", "-1", "WITHSCORES"]));
            reads.push(words(["PTTL", &names.latest()]));
        }
        if self.fence {
            reads.extend(dialect.value_or_none(&names.fence()));
        }
        if self.value {
            reads.push(words(["GETRANGE", &names.value(), "0", "3"]));
        }
        if self.shared {
            reads.push(words(["HGETALL", &names.shared()]));
            reads.push(words(["PTTL", &names.shared()]));
        }
        let tombstones = self.tombstones.iter().map(|token| names.tombstone(token));
        reads.extend(tombstones.flat_map(|key| dialect.value_or_none(&key)));
        reads
    }
}

impl Snapshot {
    /// Reads the answers to the commands of a plan.
    pub(super) fn read(
        plan: &ReadPlan,
        dialect: Dialect,
        answers: &mut impl Iterator<Item = Value>,
    ) -> Result<Self, Fault> {
        contained(|| Self::parsed(plan, dialect, answers))?
    }

    fn parsed(
        plan: &ReadPlan,
        dialect: Dialect,
        answers: &mut impl Iterator<Item = Value>,
    ) -> Result<Self, Fault> {
        let mut next = || answers.next().ok_or_else(|| nonsense("an answer is missing"));
        let (lock, left) = standing(next()?, next()?)?;
        // Without a queue only distances count.
        let mut now = Moment::START.after(Duration::from_secs(1));
        let (mut entry, mut last_ticket) = (Entry::default(), None);
        let (mut tickets, mut newest_tickets) = (Vec::new(), (0.0, None));
        if plan.queue {
            let (queue, places) = (tolerated(next()?)?, tolerated(next()?)?);
            let queue_left = decode::left(parsed(next()?)?);
            now = decode::time(parsed(next()?)?).ok_or_else(|| nonsense("of the clock"))?;
            if let (Some(queue), Some(places)) = (queue, places) {
                let last;
                tickets = parsed(queue.clone())?;
                (entry.queue, last) = waiters(queue, places)?;
                last_ticket = Some(last);
            }
            let queue_left = queue_left.filter(|_| !entry.queue.is_empty());
            entry.queue_end = queue_left.map(|left| now.after(left));
        }
        if plan.latest {
            let (latest, left) = (tolerated(next()?)?, decode::left(parsed(next()?)?));
            let end = left.map(|left| now.after(left));
            newest_tickets = note_latest(&mut entry, latest, end, &tickets)?;
        }
        if plan.fence {
            entry.fence = counter(dialect.there(&mut next)?, plan.lenient)?;
        }
        if plan.value && !may_store(next()?) {
            entry.value = Some((StoredValue::new("?"), Moment::NEVER));
        }
        if plan.shared {
            entry.shared = sharing_of(next()?, next()?, now)?;
        }
        for token in &plan.tombstones {
            if let Some(tombstone) = tombstone_of(dialect.there(&mut next)?)? {
                entry.tombstones.insert(Arc::clone(token), tombstone);
            }
        }
        if let Standing::Value { text, .. } = &lock {
            // A key that exists has some time left.
            let left = left.map(|left| now.after(left.max(Duration::from_millis(1))));
            let (token, is_marked) = unmarked(text);
            let holder =
                StoredHolder::of_mutex(token.into(), left.unwrap_or(Moment::NEVER), is_marked);
            entry.holders = [holder].into_iter().collect();
        }
        Ok(Self { now, lock, entry, last_ticket, newest_tickets })
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

    /// Whether the value at the key never expires, although it should.
    pub(super) fn is_orphan(&self) -> bool {
        let never_ends = self.entry.holders.first().is_some_and(|it| it.end == Moment::NEVER);
        let may_stay = |text: &str| is_ours(text) && text.starts_with("rl1.n");
        never_ends && !self.value().is_some_and(may_stay)
    }
}

/// The waiters in the order of arrival, and the ticket of the last one.
fn waiters(queue: Value, places: Value) -> Result<(VecDeque<StoredWaiter>, f64), Fault> {
    // A token of ours is UTF-8.
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let queue: Vec<(Vec<u8>, f64)> = parsed(queue)?;
    let places: HashMap<Vec<u8>, Vec<u8>> = parsed(places)?;
    let (mut waiters, mut last) = (VecDeque::new(), 0.0);
    for (token, ticket) in queue {
        let place = places.get(&token).and_then(|place| place_of(std::str::from_utf8(place).ok()?));
        let Some(token) = text(token) else { continue };
        let (until, channel) = place.unwrap_or((Moment::START, "-"));
        let (token, manager) = (token.into(), channel.into());
        let (kind, slotted) = (Kind::Mutex, false);
        waiters.push_back(StoredWaiter { token, kind, slotted, until, manager });
        last = ticket;
    }
    Ok((waiters, last))
}

/// Notes the newest calls. Returns the ticket of the newest one, and that of its place in the queue, if it
/// has one.
fn note_latest(
    entry: &mut Entry,
    latest: Option<Value>,
    end: Option<Moment>,
    tickets: &[(Vec<u8>, f64)],
) -> Result<(f64, Option<f64>), Fault> {
    let mut newest_tickets = (0.0, None);
    if let Some(latest) = latest {
        let latest: Vec<(Vec<u8>, f64)> = parsed(latest)?;
        let place =
            latest.last().and_then(|(last, _)| tickets.iter().find(|(token, _)| token == last));
        let place = place.map(|(_, ticket)| *ticket);
        newest_tickets = (latest.last().map_or(0.0, |(_, ticket)| *ticket), place);
        let text = |(token, _)| String::from_utf8(token).ok().map(Into::into);
        entry.latest = latest.into_iter().filter_map(text).collect();
        entry.latest_end = end;
    }
    // What is no such token was written by another program.
    if entry.latest.back().is_some_and(|last| !Token::from_wire(last).is_newest()) {
        entry.latest.clear();
    }
    Ok(newest_tickets)
}

/// The tombstone at its key, if there is one.
fn tombstone_of(value: Value) -> Result<Option<Tombstone>, Fault> {
    // A tombstone of any type refuses the token.
    let reason = match tolerated(value)? {
        Some(Value::Nil) => return Ok(None),
        Some(value) => parsed::<Vec<u8>>(value)?,
        None => Vec::new(),
    };
    let reason = String::from_utf8_lossy(&reason).into();
    Ok(Some(Tombstone { reason, until: Moment::NEVER }))
}

/// When the place of a waiter ends, and its manager's channel. `None` for waiters of another
/// family, which find out alone that the families differ.
fn place_of(place: &str) -> Option<(Moment, &str)> {
    let (until, channel) = place.split_once(' ')?;
    let until = Duration::from_millis(until.parse().ok()?);
    Some((Moment::START.after(until), channel))
}

/// Splits a value into the token and whether it has the mark that a client waits.
pub(super) fn unmarked(value: &str) -> (&str, bool) {
    match value.strip_suffix(WAITERS_MARK).filter(|_| is_ours(value)) {
        Some(token) => (token, true),
        None => (value, false),
    }
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

/// The value at the key, and the rest of its ttl, if it has one.
fn standing(value: Value, left: Value) -> Result<(Standing, Option<Duration>), Fault> {
    let Some(value) = tolerated(value)? else { return Ok((Standing::Other, None)) };
    let left: i64 = parsed(left)?;
    // Or the key expired between the two commands.
    let bytes = parsed::<Option<Vec<u8>>>(value)?.filter(|_| left != -2);
    let Some(bytes) = bytes else { return Ok((Standing::Nothing, None)) };
    let text = text_or_hex(&bytes);
    Ok((Standing::Value { bytes, text }, decode::left(left)))
}

/// The fencing counter.
fn counter(value: Value, lenient: bool) -> Result<Option<Last>, Fault> {
    let text = if lenient { tolerated(value)?.unwrap_or(Value::Nil) } else { value };
    let Some(text) = parsed::<Option<Vec<u8>>>(text)? else { return Ok(None) };
    let last = std::str::from_utf8(&text).ok().and_then(Last::read);
    if last.is_none() && !lenient { Err(odd()) } else { Ok(last) }
}

/// The shared value, the tokens entitled to it, and when it ends.
fn sharing_of(fields: Value, left: Value, now: Moment) -> Result<Option<Sharing>, Fault> {
    let end = now.after(decode::left(parsed(left)?).unwrap_or_default());
    let Some(fields) = tolerated(fields)? else {
        // Another program's value: nothing is shared.
        return Ok(Some((StoredValue::new("?"), [].into(), Moment::NEVER)));
    };
    let fields: HashMap<String, String> = parsed(fields)?;
    let Some(value) = fields.get("").map(|value| StoredValue::new(value.as_str())) else {
        return Ok(None);
    };
    let tokens = fields.into_keys().filter(|token| !token.is_empty()).map(Into::into);
    Ok(Some((value, tokens.collect(), end)))
}

/// Whether the key of the value is empty or has a value that this library wrote.
fn may_store(value: Value) -> bool {
    let Ok(stands) = from_redis_value::<Vec<u8>>(value) else { return false };
    matches!(stands.as_slice(), b"" | b"rl1.")
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
    let Snapshot { now, lock, entry, .. } = snapshot;
    let fence = entry.fence.as_ref().map(Last::of);
    let mut view = match lock {
        Standing::Value { text, .. } => {
            let end = entry.holders.first().map(|it| it.end).filter(|end| *end != Moment::NEVER);
            let left = end.map(|end| end.since(*now));
            let view = ServerView::of_value(shown(unmarked(text).0), left, fence);
            if is_ours(text) { view } else { view.of_another(digest(text).into()) }
        }
        Standing::Nothing => ServerView::of_nobody(LockKind::Free),
        Standing::Other => ServerView::of_nobody(LockKind::Foreign),
    };
    let living = entry.queue.iter().take(MOST_SHOWN).filter(|waiter| waiter.until > *now);
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
    let left =
        members.into_iter().map(|(member, at)| (member, end(at.ceil()).since(now), slot_of(at)));
    let living: Vec<_> = left.filter(|(_, left, _)| !left.is_zero()).collect();
    let more = living.len().saturating_sub(MOST_SHOWN);
    let mut view = ServerView::of_members(living.get(..MOST_SHOWN).unwrap_or(&living), 0, None);
    view.more_holders = more;
    Answer::Seen(Box::new(view))
}

/// The slot of a holder, as `end_and_slot` in `common.lua` finds it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1022")]
fn slot_of(end: f64) -> Option<u32> {
    let slot = (end.ceil() - end) * 1024.0 - 1.0;
    (slot >= 0.0).then_some(slot as u32)
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
