//! What a command reads of its lock, and the decision that follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::look;
use super::snapshot::{Ends, KnownTime, ReadScope, Snapshot, Standing};
use super::writes::{Message, Writes, one};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::memory::State;
use crate::store::memory::entry::Entry;
use crate::store::redis::channel::plain;
use crate::store::redis::decode;
use crate::store::redis::dialect::Dialect;
use crate::store::{Acquire, Answer, Blocker, CLAIM, Command, PLACE, Verb};

/// The most channels whose listeners are asked for at once.
const MOST: usize = 64;

/// What is read, and which keys must not change before the write.
#[derive(Clone, Debug)]
pub(super) struct ReadPlan {
    pub(super) watch: Vec<String>,
    pub(super) scope: ReadScope,
    /// The tokens whose tombstones are read.
    pub(super) tombstones: Vec<Arc<str>>,
}

/// What a decision depends on besides the lock itself.
#[derive(Clone, Debug)]
pub(super) struct DecisionTerms {
    pub(super) dialect: Dialect,
    /// This manager's channel; `-` when it is not subscribed.
    pub(super) channel: Arc<str>,
    /// Whether a channel has a subscriber, as far as was asked.
    pub(super) listeners: BTreeMap<String, bool>,
    /// Whether the server is full, so that only what is necessary may be written.
    pub(super) frugal: bool,
    /// Whether everything is read, even when the value at the key may be enough.
    pub(super) whole: bool,
    /// The server's time, where it is known without asking.
    pub(super) time: Option<Moment>,
    /// A waiter's process that has asked within this time is taken to be alive.
    pub(super) alive_for: Duration,
    /// Whether several keys may be read by one command.
    pub(super) reads_several: bool,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Decision {
    /// Write this. Then this is the answer.
    Write { answer: Answer, writes: Vec<Cmd>, messages: Vec<Message> },
    /// Nothing is to be done.
    Refuse(Fault),
    /// First find out whether these channels have subscribers.
    AskListeners(Vec<String>),
    /// First find out the type of the key.
    AskType,
    /// First read everything: what was read is not enough.
    ReadAll,
}

impl ReadPlan {
    pub(super) fn of(command: &Command, terms: &DecisionTerms) -> Self {
        let names = &command.names;
        let has_queue = terms.dialect == Dialect::Millis;
        let is_brief = is_brief(command, terms);
        let mut watch = vec![names.main().to_owned()];
        let mut scope = ReadScope {
            queue: has_queue,
            clock: KnownTime::Any,
            fence: false,
            lenient: false,
            ends: Ends::Read,
            several: false,
        };
        let mut tombstones: Vec<Arc<str>> = command.verb.token().into_iter().cloned().collect();
        match &command.verb {
            Verb::Acquire(acquire) => {
                (scope.queue, scope.fence) =
                    (has_queue && !is_brief, acquire.fences > 0 && has_queue);
                if is_brief && has_queue {
                    scope.several = terms.reads_several;
                    scope.ends = claim_ends(acquire);
                }
                watch.extend(tombstones.iter().map(|token| names.tombstone(token)));
                watch.extend(scope.fence.then(|| names.fence()));
            }
            Verb::Take { .. } => {
                watch.extend(tombstones.iter().map(|token| names.tombstone(token)));
                scope.queue = false;
            }
            Verb::Release { keep, tombstone, .. } => {
                scope.queue = has_queue && !is_brief;
                scope.ends = if keep.is_some() { Ends::Read } else { Ends::Any };
                // Unless the release writes a tombstone, an older one only says why the token has nothing.
                tombstones.retain(|_| tombstone.is_some());
                watch.extend(tombstones.iter().map(|token| names.tombstone(token)));
            }
            Verb::Force { tokens, .. } => {
                tombstones = tokens.iter().map(|token| Arc::clone(token.wire())).collect();
            }
            Verb::Look => {
                scope.clock = clock(scope.queue, None);
                scope = ReadScope { fence: has_queue, lenient: true, ..scope };
                return Self { watch: Vec::new(), scope, tombstones };
            }
            Verb::Renew { .. } | Verb::Keep { .. } | Verb::Check { .. } => {
                // Nothing but the lock's own key: where its slot is being moved, a node answers only
                // for keys that it has.
                scope.queue = false;
                tombstones.clear();
            }
            _ => scope.queue = false,
        }
        if scope.queue {
            watch.extend([names.queue(), names.waiters()]);
        }
        let is_release = matches!(command.verb, Verb::Release { .. });
        let known = terms.time.filter(|_| is_release && !terms.whole);
        scope.clock = clock(scope.queue || scope.fence, known);
        Self { watch, scope, tombstones }
    }
}

/// Places in the queue and fencing numbers need the time.
fn clock(is_needed: bool, known: Option<Moment>) -> KnownTime {
    match known {
        _ if !is_needed => KnownTime::Any,
        Some(time) => KnownTime::Known(time),
        None => KnownTime::Read,
    }
}

/// A token that was granted the lock has it for no longer than [`CLAIM`], until this acquisition is
/// done.
fn claim_ends(acquire: &Acquire) -> Ends {
    match acquire.ttl {
        Some(ttl) if ttl <= CLAIM => Ends::Read,
        _ => Ends::Soon,
    }
}

/// Whether reading the holder alone is likely to be enough: when a lock is released for which nobody
/// is known to wait, or when a message has said that the token was granted the lock.
fn is_brief(command: &Command, terms: &DecisionTerms) -> bool {
    let is_likely = match &command.verb {
        Verb::Release { waited_for, keep, tombstone, .. } => {
            !waited_for && keep.is_none() && tombstone.is_none()
        }
        Verb::Acquire(acquire) => acquire.notified,
        _ => false,
    };
    is_likely && !terms.whole
}

/// Whether reading the holder alone was enough.
fn was_brief(command: &Command, snapshot: &Snapshot) -> bool {
    let is_let_in = matches!(command.verb, Verb::Acquire(_));
    // With a mark, or with another value, the queue has to be read as well.
    let value = snapshot.value().map(|value| match is_let_in {
        true => super::snapshot::unmarked(value).0,
        false => value,
    });
    value == command.verb.token().map(|token| &**token)
}

/// Decides what to do about a command, from what was read.
pub(super) fn decide(command: &Command, snapshot: &Snapshot, terms: &DecisionTerms) -> Decision {
    if is_brief(command, terms) && !was_brief(command, snapshot) {
        return Decision::ReadAll;
    }
    let ended = |until: Moment| until <= snapshot.now;
    let is_by_known_time = matches!(command.verb, Verb::Release { .. }) && terms.time.is_some();
    if is_by_known_time && !terms.whole && snapshot.first_place().is_some_and(ended) {
        // Whether the place of the first waiter has ended is for the server's clock to say.
        return Decision::ReadAll;
    }
    let is_other = snapshot.lock == Standing::Other;
    match &command.verb {
        // The key is not free, whatever its value.
        Verb::Take { .. } if is_other => done(Answer::Busy(Blocker::unknown())),
        Verb::Look if is_other => Decision::AskType,
        Verb::Look => Decision::Write {
            answer: look::seen(snapshot),
            writes: Vec::new(),
            messages: Vec::new(),
        },
        Verb::Acquire(acquire) => decide_acquire(command, acquire, snapshot, terms),
        Verb::Force { .. } if is_other => {
            Decision::Refuse(Fault::needs_scripts("a lock that several hold"))
        }
        Verb::Force { foreign: Some(name), .. } => force_foreign(command, name, snapshot, terms),
        Verb::Release { tombstone: Some(_), token, waited_for, keep } if terms.frugal => {
            let (token, waited_for, keep) = (Arc::clone(token), *waited_for, *keep);
            let verb = Verb::Release { token, waited_for, keep, tombstone: None };
            by_model(&Command { verb, ..command.clone() }, snapshot, terms)
        }
        _ => by_model(command, snapshot, terms),
    }
}

fn decide_acquire(
    command: &Command,
    acquire: &Acquire,
    snapshot: &Snapshot,
    terms: &DecisionTerms,
) -> Decision {
    if snapshot.tombstones.contains_key(&acquire.token) {
        return done(Answer::Tombstone);
    }
    if acquire.fences > 0 && terms.dialect == Dialect::Seconds {
        let what = "a fencing number needs the commands TIME and PEXPIRE, which this server lacks \
                    or denies: Redis has them from 2.6 on";
        return Decision::Refuse(Fault::new(FaultClass::Unsupported, what));
    }
    let (bytes, value) = match &snapshot.lock {
        Standing::Other => return Decision::AskType,
        Standing::Nothing => return acquire_by_model(command, acquire, snapshot, terms),
        Standing::Value { bytes, text, .. } => (bytes, text),
    };
    let mine = super::snapshot::unmarked(value).0 == &*acquire.token;
    if mine || !snapshot.is_orphan() {
        return acquire_by_model(command, acquire, snapshot, terms);
    }
    let Some(grace) = acquire.repair_orphan else {
        return Decision::Refuse(decode::orphan(Some(look::shown(value))));
    };
    let mut repaired = snapshot.clone();
    repaired.lock =
        Standing::Value { bytes: bytes.clone(), text: value.clone(), left: Some(grace) };
    let mut decision = acquire_by_model(command, acquire, &repaired, terms);
    if let Decision::Write { answer: Answer::Busy(blocker), writes, .. } = &mut decision {
        blocker.repaired = true;
        writes.push(terms.dialect.expire(command.names.main(), grace));
    }
    decision
}

fn acquire_by_model(
    command: &Command,
    acquire: &Acquire,
    snapshot: &Snapshot,
    terms: &DecisionTerms,
) -> Decision {
    let mut acquire = acquire.clone();
    if snapshot.queue.is_none() || terms.frugal {
        acquire.queue = None;
        acquire.ask = None;
    }
    acquire.ask = acquire.ask.filter(|_| &*terms.channel != "-");
    let token = Arc::clone(&acquire.token);
    let command = Command { verb: Verb::Acquire(acquire), ..command.clone() };
    let mut decision = by_model(&command, snapshot, terms);
    if let Decision::Write { answer: Answer::Busy(blocker), writes, .. } = &mut decision
        && snapshot.queue.is_some()
        && !blocker.queued
        && writes.is_empty()
    {
        // This write makes a server that can't write say so, instead of "busy".
        let mut leave = one("ZREM", &command.names.queue());
        leave.arg(&*token);
        writes.push(leave);
    }
    decision
}

/// Deletes the value of another program, if it is the one that was looked at.
fn force_foreign(
    command: &Command,
    name: &str,
    snapshot: &Snapshot,
    terms: &DecisionTerms,
) -> Decision {
    match snapshot.value() {
        Some(value) if look::digest(value) == name => {
            // All of it, although less may have been shown.
            let token = value.into();
            let verb = Verb::Release { token, waited_for: true, keep: None, tombstone: None };
            by_model(&Command { verb, ..command.clone() }, snapshot, terms)
        }
        _ => done(Answer::Gone { by: None, because: None }),
    }
}

fn done(answer: Answer) -> Decision {
    Decision::Write { answer, writes: Vec::new(), messages: Vec::new() }
}

/// Lets the model execute the command on what was read.
fn by_model(command: &Command, snapshot: &Snapshot, terms: &DecisionTerms) -> Decision {
    let mut snapshot = snapshot.clone();
    if terms.frugal {
        // The lock is freed without a grant; the waiters look by themselves.
        snapshot.queue = None;
    }
    let before = snapshot.entry();
    let (mut grants, mut unknown) = (Vec::new(), false);
    let mut publish = |channel: &str, token: Option<&str>| {
        let heard = match terms.listeners.get(channel) {
            _ if channel == "-" => return true,
            // Listeners of a sharded channel can be counted at its own node only.
            _ if plain(channel).is_some() => true,
            Some(heard) => *heard,
            None if asked_within(terms.alive_for, &before, channel, snapshot.now) => true,
            None => {
                unknown = true;
                false
            }
        };
        if let (true, Some(token)) = (heard, token) {
            grants.push((channel.to_owned(), token.to_owned()));
        }
        heard
    };
    let mut state = State::of_one(command.names.main(), before.clone());
    let answer = state.answer(command, &terms.channel, snapshot.now, &mut publish);
    if unknown {
        return Decision::AskListeners(channels(&before, snapshot.now, terms));
    }
    let answer = match answer {
        Ok(answer) => explain(answer, &snapshot),
        Err(fault) => return Decision::Refuse(fault),
    };
    let after = state.into_entry(command.names.main());
    let (names, dialect) = (&command.names, terms.dialect);
    let compared = Writes { names, dialect, snapshot: &snapshot, before: &before, after: &after };
    let (writes, asked) = compared.commands();
    let is_marked = after.holders.first().is_some_and(|holder| holder.is_waited_for());
    let granted = grants.into_iter().map(|(channel, token)| {
        let mark = if is_marked { "+" } else { "" };
        let channel = plain(&channel).unwrap_or(channel);
        Message { channel, text: format!("g {token}{mark}") }
    });
    let idle = idle_asked(command, &answer);
    let messages = forced(command, &before).chain(granted).chain(asked).chain(idle).collect();
    Decision::Write { answer, writes, messages }
}

/// Asks a holder that may be idle for the lock.
fn idle_asked(command: &Command, answer: &Answer) -> Option<Message> {
    let Answer::Busy(Blocker { value: Some(holder), asked: true, .. }) = answer else {
        return None;
    };
    let (names, asker) = (&command.names, command.verb.token()?);
    let holder = crate::Token::from_wire(holder);
    let text = format!("a {} {asker} {}", asker.len(), names.main());
    Some(Message { channel: names.channel(holder.manager()?), text })
}

/// Adds the value at the key when it is no token.
fn explain(answer: Answer, snapshot: &Snapshot) -> Answer {
    match answer {
        Answer::Gone { by: None, because: None } if snapshot.lock == Standing::Other => {
            Answer::Gone { by: Some("(a value of another type)".into()), because: None }
        }
        answer => answer,
    }
}

/// The messages to those whose holds are ended by force.
fn forced<'a>(command: &'a Command, before: &'a Entry) -> impl Iterator<Item = Message> + 'a {
    let tokens = match &command.verb {
        Verb::Force { tokens, .. } => tokens.as_slice(),
        _ => &[],
    };
    let holds =
        |token: &&crate::Token| before.holders.iter().any(|holder| holder.token == *token.wire());
    tokens.iter().filter(holds).map(|token| Message {
        channel: command.names.channel(token.manager().unwrap_or_default()),
        text: format!("r {}", token.wire()),
    })
}

/// Whether a waiter with this channel has asked so lately.
fn asked_within(time: Duration, before: &Entry, channel: &str, now: Moment) -> bool {
    let mut asked = before.queue.iter().filter(|waiter| &*waiter.manager == channel);
    // A place that ends later than one of now was taken before the clock was set back, nobody knows when.
    let (earliest, latest) = (now.after(PLACE), now.after(PLACE).after(time));
    asked.any(|waiter| waiter.until.after(time) > earliest && waiter.until < latest)
}

/// The channels of waiters that may be granted the lock, if it is not known yet whether they have
/// subscribers.
fn channels(before: &Entry, now: Moment, terms: &DecisionTerms) -> Vec<String> {
    let living = before.queue.iter().filter(|waiter| waiter.until > now);
    let channels: BTreeSet<&str> = living.map(|waiter| &*waiter.manager).collect();
    let can_be_asked = |channel: &&str| *channel != "-" && plain(channel).is_none();
    let unknown = |channel: &&str| can_be_asked(channel) && !terms.listeners.contains_key(*channel);
    channels.into_iter().filter(unknown).take(MOST).map(Into::into).collect()
}

/// Whether a command is about a mutex, the one kind of lock that needs no scripts.
pub(super) fn is_possible(command: &Command) -> Result<(), Fault> {
    let at_any = matches!(
        command.verb,
        Verb::Ping | Verb::Scan { .. } | Verb::Look | Verb::Force { .. } | Verb::Why { .. }
    );
    let mutex = command.kind == Kind::Mutex
        && !matches!(command.verb, Verb::Downgrade { .. } | Verb::Raise { .. });
    if at_any || mutex {
        return Ok(());
    }
    let what = command.kind.description();
    Err(Fault::needs_scripts(what))
}

/// How long to pause after this many aborted transactions. It is random, so that two clients that
/// disturb each other don't go on doing so.
pub(super) fn pause(aborts: u32, random: u8) -> Duration {
    let longest = match aborts {
        0..=3 => Duration::from_millis(1),
        more => Duration::from_millis(2) * (1 << more.saturating_sub(3).min(5)),
    };
    longest * u32::from(random) / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::entry::StoredWaiter;

    #[test]
    fn a_place_of_before_the_clock_was_set_back_does_not_tell_that_its_waiter_lives() {
        let (now, time) = (Moment::at_millis(100_000), Duration::from_millis(100));
        let is_alive = |asked: u64| {
            let until = Moment::at_millis(asked).after(PLACE);
            let waiter = StoredWaiter {
                token: "t".into(),
                kind: Kind::Mutex,
                until,
                manager: "lock:~m:x".into(),
            };
            let entry = Entry { queue: [waiter].into(), ..Entry::default() };
            asked_within(time, &entry, "lock:~m:x", now)
        };
        assert!(is_alive(99_901) && is_alive(100_003));
        assert!(!is_alive(99_899), "it has not asked for long");
        assert!(!is_alive(110_000), "the clock was set back by 10 s or more");
    }
}
