//! The server: the model that is also the memory store, with a clock and faults of its own, and
//! with a record of all values that its keys ever had.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::clock::{MILLI, SECOND, true_time};
use super::key_space::{TransactionServer, goes_on_link};
use super::planned_trouble::Refusal;
use super::stay::{Left, Stay, forget_oldest};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::mark::Mark;
use crate::store::memory::entry::Entry;
use crate::store::memory::holders::Holders;
use crate::store::memory::{State, To};
use crate::store::{Answer, Blocker, Command, Event, Verb};

#[derive(Default)]
pub(super) struct SimulatedServer {
    pub(super) state: State,
    /// Its keys, where it is used without scripts. Then the state is what these say.
    pub(super) by_transactions: Option<TransactionServer>,
    /// How far its clocks have been set forward, or back.
    pub(super) jumped: i64,
    /// How far the clock of the node that has a key is ahead of that beyond this.
    pub(super) ahead: BTreeMap<String, i64>,
    pub(super) frozen_until: u64,
    pub(super) refusals: Vec<(Refusal, u64)>,
    /// Until when attempts to connect are refused, and are not answered.
    pub(super) refuses_until: u64,
    pub(super) loses_until: u64,
    /// Which managers are subscribed at which node, and what process that is.
    pub(super) subscribers: BTreeMap<(usize, Arc<str>), usize>,
    pub(super) tokens: HashMap<Arc<str>, TokenNote>,
    stays: BTreeMap<String, Vec<Stay>>,
    /// Whether it has the key that is written before replicas are waited for.
    pub(super) has_marker: bool,
    /// Whether it has lost its data once.
    pub(super) has_forgotten: bool,
    pub(super) second_calls: super::second_calls::SecondCalls,
    /// A violation that another part has found.
    pub(super) violation: Option<String>,
}

/// What is known of a token.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenNote {
    /// A planned fault of the server took away what the token had.
    pub(super) is_excused: bool,
    pub(super) left: Option<Left>,
    /// A mark has taken its place.
    pub(super) is_marked: bool,
    /// When its lease at one of its keys ended last.
    pub(super) expired_at: Option<u64>,
    /// The outcome of an acquisition is unknown.
    pub(super) is_doubtful: bool,
    /// When it was released although it was in doubt.
    pub(super) undone_at: Option<u64>,
    pub(super) longest: u64,
    /// It was asked for a mutex alone.
    pub(super) is_of_mutex: bool,
    /// The node to which its release was sent last, as long as its process knows no reason why it
    /// was not executed there.
    pub(super) leaving: Option<usize>,
    /// A release of it was answered; what follows only repeats it.
    pub(super) is_released: bool,
    /// It stays until then although it was released.
    pub(super) kept_until: u64,
    /// When what it has would have ended, had the server's clock not been set back meanwhile.
    pub(super) meant_to_end: Option<u64>,
    /// How many guards have it, how many ever had, and when the last of them was given up.
    pub(super) guards: u32,
    pub(super) guards_ever: u32,
    pub(super) given_up: Option<u64>,
    /// What its process asked before that has a smaller number.
    pub(super) given_up_by: u64,
    pub(super) was_alone: bool,
}

impl TokenNote {
    /// Whether it stays although its process need not know of it any more.
    pub(super) fn stays_at(&self, now: u64) -> bool {
        self.kept_until > now || self.meant_to_end.is_some_and(|end| end <= now)
    }
}

/// The messages, and the processes that they are for.
pub(super) type Messages = Vec<(usize, Event)>;

impl SimulatedServer {
    pub(super) fn note(&mut self, token: &Arc<str>) -> &mut TokenNote {
        self.tokens.entry(Arc::clone(token)).or_default()
    }

    pub(super) fn refuse(&mut self, why: Refusal, until: u64) {
        self.refusals.push((why, until));
    }

    /// The subscriptions of a manager end.
    pub(super) fn forget(&mut self, manager: &str) {
        self.subscribers.retain(|(_, other), _| **other != *manager);
    }

    /// The process of a manager that is subscribed at a node.
    fn subscriber(&self, node: usize, manager: &str) -> Option<usize> {
        self.subscribers.get(&(node, manager.into())).copied()
    }

    /// Executes a command at a node. The second value is whether the connection is of no use afterwards.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        (node, manager): (usize, &Arc<str>),
        now: u64,
        messages: &mut Messages,
    ) -> (Result<Answer, Fault>, bool) {
        if let Some(refused) = self.refusal(command, now) {
            return refused;
        }
        self.begin(command, now);
        let is_kept = goes_on_link(&command.verb) && !matches!(command.verb, Verb::Take { .. });
        if self.by_transactions.is_some() && !is_kept {
            let is_heard = self.subscriber(node, manager).is_some();
            let channel = if is_heard { command.names.channel(manager) } else { "-".into() };
            let answer = self.at_once(command, (node, &channel), now, messages);
            self.conclude(command, &answer, now);
            return (answer, false);
        }
        // A holder gets its message by the channel of whoever asks.
        let asks = matches!(command.verb, Verb::Acquire(_));
        let is_deaf = asks && self.subscriber(node, manager).is_none();
        let subscribers = &self.subscribers;
        let mut tell = |to: To<'_>, event: Option<Event>| {
            let process = subscribers.get(&(node, to.name().into()));
            let Some(process) = process.filter(|_| !is_deaf || matches!(to, To::Waiter(_))) else {
                return false;
            };
            messages.extend(event.map(|event| match (to, event) {
                (To::Waiter(_), Event::Granted { token, .. }) => {
                    (*process, Event::Granted { token, waited_for: now.is_multiple_of(3) })
                }
                (_, event) => (*process, event),
            }));
            true
        };
        let clock = self.clock_at(command.names.main(), now);
        let answer = self.state.answer(command, manager, clock, &mut tell);
        for names in command.names.all() {
            self.look_back(names.main(), now, Some(&command.verb));
        }
        self.follow(command, &answer, now);
        (answer, false)
    }

    /// The answer of a server in trouble.
    fn refusal(&mut self, command: &Command, now: u64) -> Option<(Result<Answer, Fault>, bool)> {
        self.refusals.retain(|(_, until)| *until > now);
        let verb = &command.verb;
        if self.by_transactions.is_some() && !goes_on_link(verb) {
            return None;
        }
        let acquires = matches!(verb, Verb::Take { .. } | Verb::Acquire { .. });
        let reads = reads(verb);
        let applies = |why: &Refusal| match why {
            Refusal::ReadOnly | Refusal::NoReplicas => !reads,
            Refusal::OutOfMemory => acquires,
            Refusal::Loading => true,
        };
        let (why, _) = self.refusals.iter().find(|(why, _)| applies(why))?;
        if planted!(BusyForReadOnly) && acquires {
            return Some((Ok(Answer::Busy(Blocker::unknown())), false));
        }
        let fault = Fault::new(FaultClass::Refused, format!("{why:?}"));
        Some((Err(fault), *why == Refusal::ReadOnly))
    }

    /// Notes what is known of the token of an executed command.
    pub(super) fn follow(&mut self, command: &Command, answer: &Result<Answer, Fault>, now: u64) {
        if let (Ok(answer), false) = (answer, self.has_forgotten) {
            let clock = self.clock_at(command.names.main(), now);
            let entry = self.state.entries.get(command.names.main());
            let entry = entry.filter(|_| self.by_transactions.is_none());
            let what = self.second_calls.follow(command, answer, entry, clock);
            what.map(|what| self.violation.get_or_insert(what));
        }
        let Some(token) = command.verb.token() else { return };
        let note = self.tokens.entry(Arc::clone(token)).or_default();
        match (&command.verb, answer) {
            (Verb::Release { keep, .. }, Ok(answer)) => {
                if let Some(keep) = keep {
                    // Of several keys, those that were not lost.
                    note.kept_until = now + nanos(keep.time);
                }
                // The part of one key says nothing of the token's other keys.
                let is_all = matches!(command.kind, Kind::All { .. });
                let is_part = is_all && command.names.all().count() == 1;
                let stays = keep.is_some() && *answer == Answer::Done || is_part;
                if note.is_doubtful && !stays {
                    note.undone_at = Some(now);
                }
            }
            (
                Verb::Acquire { .. },
                Ok(Answer::Held { .. } | Answer::Busy(Blocker { queued: true, .. })),
            ) => {
                let undone = note.undone_at.filter(|at| now < at + note.longest + 4 * SECOND);
                if undone.is_some() {
                    let what = format!("{token} was released in doubt, and was let in again");
                    self.violation.get_or_insert(what);
                }
            }
            _ => {}
        }
    }

    /// Records which tokens came to a key and which left it since the last look at it.
    pub(super) fn look_back(&mut self, key: &str, now: u64, verb: Option<&Verb>) {
        let (clock, fast) = (self.clock_at(key, now), self.fast(key));
        let to_true = |shown: Moment| true_time(shown, fast);
        let nobody = Holders::default();
        let holders = self.state.entries.get(key).map_or(&nobody, |entry| &entry.holders);
        if !self.stays.contains_key(key) {
            self.stays.insert(key.to_owned(), Vec::new());
        }
        let Some(stays) = self.stays.get_mut(key) else { return };
        for stay in stays.iter_mut().filter(|stay| stay.until.is_none()) {
            let holder = holders.get(&stay.token).filter(|it| it.end > clock);
            if let Some(holder) = holder {
                let end = to_true(holder.end);
                if self.by_transactions.is_some() && end > stay.end {
                    // A mark brings the rest of a lease, as it was when it was read.
                    let note = self.tokens.entry(Arc::clone(&stay.token)).or_default();
                    note.kept_until = if note.kept_until > 0 { end } else { 0 };
                }
                stay.end = end;
                continue;
            }
            stay.until = Some(now.min(stay.end));
            let note = self.tokens.entry(Arc::clone(&stay.token)).or_default();
            let left = match verb {
                _ if stay.end <= now => Left::Expired,
                Some(Verb::Force { .. }) => Left::Taken,
                Some(_) => Left::Released,
                None => Left::Expired,
            };
            note.left = Some(left);
            if left == Left::Released && Mark::read(&stay.token).is_some() {
                let what = format!("{} at {key} was ended by {verb:?}", stay.token);
                self.violation.get_or_insert(what);
            }
            if left == Left::Expired {
                note.expired_at = Some(now);
            }
            note.is_excused |= left == Left::Taken;
        }
        for holder in holders.iter().filter(|it| it.end > clock) {
            if !stays.iter().any(|stay| stay.until.is_none() && stay.token == holder.token) {
                let token = Arc::clone(&holder.token);
                if let Some(mark) = Mark::read_done(&token) {
                    let of_mark = self.tokens.entry(Arc::clone(mark.token.wire()));
                    of_mark.or_default().is_marked = true;
                }
                stays.push(Stay { token, until: None, end: to_true(holder.end) });
            }
        }
        forget_oldest(stays);
    }

    /// When the lease of a token at a key ends, in true time.
    pub(super) fn lease_end(&self, key: &str, token: &Arc<str>) -> Option<u64> {
        let holders = &self.state.entries.get(key)?.holders;
        Some(true_time(holders.get(token)?.end, self.fast(key)))
    }

    /// The tokens that had a key at some time since then. A key that expires stands until the millisecond
    /// in which it does so is over.
    pub(super) fn stays_since(&self, key: &str, since: u64) -> impl Iterator<Item = &Stay> {
        let last = if self.by_transactions.is_some() { MILLI } else { 0 };
        let over = move |stay: &Stay| {
            let ended = stay.until.filter(|until| *until < stay.end);
            ended.unwrap_or_else(|| stay.end.saturating_add(last))
        };
        let stays = self.stays.get(key).into_iter().flatten();
        stays.filter(move |stay| over(stay) >= since)
    }

    /// Since when the key is free; `None` while it is held.
    pub(super) fn free_since(&self, key: &str, now: u64) -> Option<u64> {
        let clock = self.clock_at(key, now);
        let entry = self.state.entries.get(key);
        if entry.is_some_and(|entry| entry.holders.iter().any(|holder| holder.end > clock)) {
            return None;
        }
        let stays = self.stays.get(key).into_iter().flatten();
        Some(stays.map(|stay| stay.until.unwrap_or(stay.end)).max().unwrap_or(0))
    }

    /// The token that has a mutex.
    pub(super) fn holder(&self, key: &str, now: u64) -> Option<Arc<str>> {
        let clock = self.clock_at(key, now);
        let mut holders = self.state.entries.get(key)?.holders.iter();
        Some(Arc::clone(&holders.find(|holder| holder.end > clock)?.token))
    }

    /// All tokens that hold or wait, with the key.
    pub(super) fn present(&self, now: u64) -> Vec<(&str, &Arc<str>)> {
        let mut present = Vec::new();
        for (key, entry) in &self.state.entries {
            let clock = self.clock_at(key, now);
            let holders = entry.holders.iter().filter(|it| it.end > clock).map(|it| &it.token);
            let waiters = entry.queue.iter().filter(|it| it.until > clock).map(|it| &it.token);
            present.extend(holders.chain(waiters).map(|token| (key.as_str(), token)));
        }
        present
    }

    /// All tokens that wait, with the key.
    pub(super) fn waiting(&self, now: u64) -> impl Iterator<Item = (&str, &Arc<str>)> {
        self.state.entries.iter().flat_map(move |(key, entry)| {
            let clock = self.clock_at(key, now);
            let waiters = entry.queue.iter().filter(move |it| it.until > clock);
            waiters.map(|waiter| (key.as_str(), &waiter.token))
        })
    }

    /// The first token that waits for each key.
    pub(super) fn first_waiting(&self, now: u64) -> impl Iterator<Item = (&str, &Arc<str>)> {
        self.state.entries.iter().filter_map(move |(key, entry)| {
            let clock = self.clock_at(key, now);
            let first = entry.queue.iter().find(|it| it.until > clock)?;
            Some((key.as_str(), &first.token))
        })
    }

    /// Keys at which more than a fencing number is left.
    pub(super) fn leftovers(&mut self, now: u64) -> Vec<String> {
        let clocks: Vec<_> = self.state.entries.keys().map(|key| self.clock_at(key, now)).collect();
        let littered = |((key, entry), clock): ((&String, &mut Entry), Moment)| {
            (!entry.is_free_of_locks(clock)).then(|| key.clone())
        };
        self.state.entries.iter_mut().zip(clocks).filter_map(littered).collect()
    }

    /// All data are gone.
    pub(super) fn flush(&mut self, now: u64) {
        self.excuse_all(now);
        (self.has_forgotten, self.has_marker) = (true, false);
        self.tokens.values_mut().for_each(|note| note.undone_at = None);
        self.state = State::default();
        if let Some(server) = &mut self.by_transactions {
            server.keys.clear();
        }
        for stays in self.stays.values_mut() {
            for stay in stays.iter_mut().filter(|stay| stay.until.is_none()) {
                stay.until = Some(now.min(stay.end));
            }
        }
    }
}

/// Whether a replica does it as well.
pub(super) fn reads(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Check { .. }
            | Verb::Look
            | Verb::Fetch
            | Verb::Ping
            | Verb::Why { .. }
            | Verb::Scan { .. }
    )
}

pub(super) fn asked(verb: &Verb) -> u64 {
    match verb {
        Verb::Take { ttl, .. } | Verb::Renew { ttl, .. } => ttl.map_or(0, nanos),
        Verb::Acquire(acquire) => acquire.ttl.map_or(0, nanos),
        _ => 0,
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
