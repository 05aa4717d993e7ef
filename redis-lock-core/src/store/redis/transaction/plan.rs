//! The decision that follows from what a command reads of its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::snapshot::{Snapshot, Standing, digest, seen, shown, unmarked};
use super::writes::Writes;
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::mark::Mark;
use crate::store::memory::entry::Entry;
use crate::store::memory::{State, To};
use crate::store::redis::decode;
use crate::store::redis::dialect::{Dialect, expire, words};
use crate::store::redis::listen::{message, plain};
use crate::store::wire::contained;
use crate::store::{Acquire, Answer, Blocker, Command, Event, Keep, Verb};

/// The most channels whose listeners are asked for at once.
const MOST: usize = 64;

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
    /// Whether messages may be published, as far as is known.
    pub(super) may_publish: bool,
}

/// Write this. Then this is the answer.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) answer: Answer,
    pub(super) writes: Vec<Cmd>,
    pub(super) messages: Vec<Cmd>,
}

/// What follows from an answer.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Find out whether these channels have subscribers, for `TransactionSteps::hear`.
    AskListeners(Vec<String>),
    /// Ask for the type of the value that was read then. That is the answer.
    AskType(Moment),
    /// Send this; an `EXEC` follows.
    Write(Vec<Cmd>),
    /// The values have changed since they were read: start again.
    Aborted,
    /// Nothing was executed: it begins anew, in another way.
    Again,
    Done(Result<Answer, Fault>),
}

/// What to write, or what else to do.
type Decision = Result<Planned, NextStep>;

/// Decides what to do about a command, from what was read.
pub(super) fn decide(command: &Command, snapshot: &Snapshot, terms: &DecisionTerms) -> Decision {
    contained(|| decided(command, snapshot, terms)).unwrap_or_else(refuse)
}

fn decided(command: &Command, snapshot: &Snapshot, terms: &DecisionTerms) -> Decision {
    let is_other = snapshot.lock == Standing::Other;
    match &command.verb {
        // The key is not free, whatever its value.
        Verb::Take { .. } if is_other => done(Answer::Busy(Blocker::unknown())),
        Verb::Look if is_other => Err(NextStep::AskType(snapshot.now)),
        Verb::Look => done(seen(snapshot)),
        Verb::Acquire(acquire) => decide_acquire(command, acquire, snapshot, terms),
        Verb::Force { .. } if is_other => refuse(Fault::needs_scripts("a lock that several hold")),
        Verb::Force { foreign: Some(name), .. } => force_foreign(command, name, snapshot, terms),
        Verb::Release { token, waited_for, keep, .. } if terms.frugal => {
            // `min_hold` does without a value of its own where none can be written in place of the token.
            let keep = keep.clone().map(|keep| match Mark::read_done(&keep.mark) {
                // A full server may still have room for the mark.
                Some(_) => Keep { value: None, ..keep },
                None => Keep { mark: Arc::clone(token), ..keep },
            });
            let (token, waited_for) = (Arc::clone(token), *waited_for);
            let verb = Verb::Release { token, waited_for, keep, share: None, tombstone: None };
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
    if snapshot.entry.tombstones.contains_key(&acquire.token) {
        return done(Answer::Tombstone);
    }
    let value = match &snapshot.lock {
        Standing::Other => return Err(NextStep::AskType(snapshot.now)),
        Standing::Value { text, .. } if snapshot.is_orphan() => unmarked(text).0,
        _ => return acquire_by_model(command, acquire, snapshot, terms),
    };
    if value == &*acquire.token {
        return acquire_by_model(command, acquire, snapshot, terms);
    }
    let Some(grace) = acquire.repair_orphan else {
        return refuse(decode::orphan(snapshot.value().map(shown)));
    };
    let mut repaired = snapshot.clone();
    repaired.entry.holders.set_end(&value.into(), snapshot.now.after(grace));
    let mut planned = acquire_by_model(command, acquire, &repaired, terms)?;
    if let Answer::Busy(blocker) = &mut planned.answer {
        blocker.repaired = true;
        planned.writes.push(expire(command.names.main(), grace));
    }
    Ok(planned)
}

fn acquire_by_model(
    command: &Command,
    acquire: &Acquire,
    snapshot: &Snapshot,
    terms: &DecisionTerms,
) -> Decision {
    let mut acquire = acquire.clone();
    if snapshot.last_ticket.is_none() || terms.frugal {
        acquire.queue = None;
        acquire.ask = None;
        acquire.newest = None;
    }
    acquire.ask = acquire.ask.filter(|_| &*terms.channel != "-");
    let token = Arc::clone(&acquire.token);
    let command = Command { verb: Verb::Acquire(acquire), ..command.clone() };
    let mut planned = by_model(&command, snapshot, terms)?;
    if matches!(
        planned.answer,
        Answer::Busy(Blocker { queued: false, .. })
            | Answer::Crowded { .. }
            | Answer::Superseded { .. }
    ) && snapshot.last_ticket.is_some()
        && planned.writes.is_empty()
    {
        // This write makes a server that can't write say so, instead of "busy".
        planned.writes.push(words(["ZREM", &command.names.queue(), &token]));
    }
    Ok(planned)
}

/// Deletes the value of another program, if it is still the value that was read.
fn force_foreign(
    command: &Command,
    name: &str,
    snapshot: &Snapshot,
    terms: &DecisionTerms,
) -> Decision {
    match snapshot.value() {
        Some(value) if digest(value) == name => {
            // All of it, although less may have been shown.
            let token = if planted!(ShownIsForced) { shown(value) } else { value }.into();
            let verb =
                Verb::Release { token, waited_for: true, keep: None, share: None, tombstone: None };
            let mut planned = by_model(&Command { verb, ..command.clone() }, snapshot, terms)?;
            if snapshot.entry.value.is_none() {
                planned.writes.push(words(["DEL", &command.names.value()]));
            }
            Ok(planned)
        }
        _ => done(Answer::Gone { by: None, because: None }),
    }
}

fn done(answer: Answer) -> Decision {
    Ok(Planned { answer, writes: Vec::new(), messages: Vec::new() })
}

fn refuse(fault: Fault) -> Decision {
    Err(NextStep::Done(Err(fault)))
}

/// Lets the model execute the command on what was read.
fn by_model(command: &Command, snapshot: &Snapshot, terms: &DecisionTerms) -> Decision {
    let mut before = snapshot.entry.clone();
    if terms.frugal {
        // The lock is freed without a grant, and the waiters look by themselves. To take a place out of the
        // queue needs no memory.
        before.queue.retain(|waiter| command.verb.token() == Some(&waiter.token));
    }
    let (mut messages, mut unknown) = (Vec::new(), BTreeSet::new());
    let mut tell = |to: To<'_>, event: Option<Event>| {
        let (channel, heard) = match to {
            To::Waiter("-") => return true,
            To::Manager(manager) => (command.names.channel(manager), true),
            // Listeners of a sharded channel can be counted at its own node only.
            To::Waiter(channel) => match (plain(channel), terms.listeners.get(channel)) {
                (Some(plain), _) => (plain, true),
                (None, Some(heard)) => (channel.to_owned(), *heard),
                (None, None) => {
                    // This decision is thrown away, so any answer does. With `true` the model stops here.
                    unknown.insert(channel.to_owned());
                    (channel.to_owned(), true)
                }
            },
        };
        let text = event.filter(|_| heard).and_then(|event| message(&event));
        messages.extend(text.map(|text| words(["PUBLISH", &channel, &text])));
        heard
    };
    let mut state = State::of_one(command.names.main(), before.clone());
    let answer = state.answer(command, &terms.channel, snapshot.now, &mut tell);
    if !unknown.is_empty() {
        let others = channels(&before, snapshot.now, terms);
        unknown.extend(others);
        return Err(NextStep::AskListeners(unknown.into_iter().collect()));
    }
    let answer = match answer {
        Ok(answer) => explain(answer, snapshot),
        Err(fault) => return refuse(fault),
    };
    let after = state.into_entry(command.names.main());
    let compared = Writes { names: &command.names, snapshot, before: &before, after: &after };
    let writes = compared.commands();
    Ok(Planned { answer, writes, messages })
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

/// The channels of waiters that may be granted the lock, if it is not known yet whether they have
/// subscribers. They are asked about together with one that the model needs to know.
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
        Verb::Ping
            | Verb::Scan { .. }
            | Verb::Fetch
            | Verb::Look
            | Verb::Force { .. }
            | Verb::Why { .. }
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
