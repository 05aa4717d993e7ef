//! One lock: its holders, its queue, and which holders fit together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use super::fences::Last;
use super::holders::{Holders, StoredHolder};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::value::StoredValue;
use crate::store::{ASK, Answer, Blocker, CLAIM, Event, Newest};

/// How much longer than asked for a lease may be before a renewal reports it.
const SLACK: Duration = Duration::from_secs(1);

/// How long places in a queue that have ended are remembered.
pub(crate) const QUEUE_GRACE: Duration = Duration::from_secs(1);

/// How many of the queue are checked before a token is refused because too many wait.
const MOST_CHECKED: usize = 32;

/// The state of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// All of one family: see [`Entry::check_family`].
    pub(crate) holders: Holders,
    /// In the order of arrival.
    pub(crate) queue: VecDeque<StoredWaiter>,
    /// When the whole queue is forgotten, unless a waiter asks again.
    pub(crate) queue_end: Option<Moment>,
    pub(crate) fence: Option<Last>,
    /// The value that the last hold has stored, with its token in front, and when it is forgotten.
    pub(crate) value: Option<(StoredValue, Moment)>,
    /// The tokens of calls that end older ones, in the order of arrival, and until when they are known.
    pub(crate) latest: VecDeque<Arc<str>>,
    pub(crate) latest_end: Option<Moment>,
    /// The value of the last hold that shared it, the tokens entitled to it, and when it is
    /// forgotten.
    pub(crate) shared: Option<Sharing>,
    /// Tombstones, by the token that they refuse.
    pub(crate) tombstones: BTreeMap<Arc<str>, Tombstone>,
}

/// The value of a hold, the tokens entitled to it, and when it is forgotten.
pub(crate) type Sharing = (StoredValue, BTreeSet<Arc<str>>, Moment);

/// A tombstone: refuses acquisitions of a token.
#[derive(Clone, Debug)]
pub(crate) struct Tombstone {
    /// Why its hold was ended by force; empty if it was not.
    pub(crate) reason: Arc<str>,
    pub(crate) until: Moment,
}

/// A waiter in the queue.
#[derive(Clone, Debug)]
pub(crate) struct StoredWaiter {
    pub(crate) token: Arc<str>,
    pub(crate) kind: Kind,
    /// Whether it wants a slot.
    pub(crate) slotted: bool,
    /// When its place ends, unless it asks again.
    pub(crate) until: Moment,
    pub(crate) manager: Arc<str>,
}

impl Entry {
    pub(super) fn expire(&mut self, now: Moment) {
        self.holders.expire(now);
        if self.queue_end.is_some_and(|end| end <= now) {
            self.queue.clear();
        }
        self.queue_end.take_if(|_| self.queue.is_empty());
        if self.latest_end.is_some_and(|end| end <= now) {
            self.latest.clear();
        }
        self.latest_end.take_if(|_| self.latest.is_empty());
        self.tombstones.retain(|_, tombstone| tombstone.until > now);
        self.value.take_if(|(_, until)| *until <= now);
        self.shared.take_if(|(_, _, until)| *until <= now);
        self.fence.take_if(|last| last.is_forgotten(now));
    }

    /// Whether the entry can be removed. Where the clock is never set back, a new counter begins above
    /// all numbers that the clock has passed, so the last one is not kept.
    pub(super) fn is_blank(&mut self, now: Moment, is_steady: bool) -> bool {
        self.expire(now);
        self.holders.is_empty()
            && self.queue.is_empty()
            && self.latest.is_empty()
            && self.tombstones.is_empty()
            && self.value.is_none()
            && self.shared.is_none()
            && self.fence.as_ref().is_none_or(|last| is_steady && last.is_passed(now))
    }

    /// Whether nothing but a fencing number is left.
    #[cfg(test)]
    pub(crate) fn is_free_of_locks(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.holders.is_empty() && self.queue.is_empty() && self.tombstones.is_empty()
    }

    pub(super) fn has_tombstone(&self, token: &Arc<str>) -> bool {
        self.tombstones.contains_key(token) && !planted!(TombstoneIgnored)
    }

    pub(super) fn leave_tombstone(&mut self, token: &Arc<str>, reason: &Arc<str>, until: Moment) {
        let tombstone = Tombstone { reason: Arc::clone(reason), until };
        self.tombstones.insert(Arc::clone(token), tombstone);
    }

    pub(super) fn has(&self, token: &Arc<str>) -> bool {
        self.holders.get(token).is_some()
    }

    /// Fails when the lock is held as a kind of another family.
    pub(super) fn check_family(&self, kind: Kind) -> Result<(), Fault> {
        match self.holders.first() {
            Some(holder) if holder.kind.family() != kind.family() => {
                Err(Fault::new(FaultClass::Misuse, holder.kind.family().in_use()))
            }
            _ => Ok(()),
        }
    }

    /// Whether another holder of this kind fits beside the present ones.
    pub(super) fn fits(&self, kind: Kind) -> bool {
        match kind.limit() {
            _ if kind.traits().is_exclusive => self.holders.is_empty(),
            Some(limit) => {
                self.holders.len() < usize::try_from(self.least(limit)).unwrap_or(usize::MAX)
            }
            // A writer holds alone, so any holder is like all others.
            None => self.holders.first().is_none_or(|holder| holder.kind.fits_beside(kind)),
        }
    }

    /// The smallest limit of permits among the holders and this one.
    pub(super) fn least(&self, limit: u32) -> u32 {
        self.holders.least_limit().map_or(limit, |least| least.min(limit))
    }

    /// Makes a token a holder until `end`; a lease that it has already is not shortened.
    pub(super) fn put(&mut self, token: &Arc<str>, kind: Kind, end: Moment) {
        let waited_for = kind.is_value() && !self.queue.is_empty();
        match self.holders.get(token) {
            Some(holder) => {
                let end = end.max(holder.end);
                self.holders.set_end(token, end);
            }
            None => self.add(token, kind, end, waited_for),
        }
    }

    /// Lets a token have the lock. `waited_for` says whether a mutex shows that a client waits.
    pub(super) fn add(&mut self, token: &Arc<str>, kind: Kind, end: Moment, waited_for: bool) {
        let token = Arc::clone(token);
        self.holders.add(StoredHolder { token, kind, end, waited_for, slot: None });
    }

    /// Lets the lease of a token run for `ttl` from now, unless it runs longer.
    pub(super) fn renew(
        &mut self,
        token: &Arc<str>,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Option<Answer> {
        let holder = self.holders.get(token)?;
        let (before, waited_for, slot) = (holder.end, holder.waited_for, holder.slot);
        let Some(ttl) = ttl else {
            return Some(Answer::Renewed { longer: None, waited_for, slot });
        };
        let asked = now.after(ttl);
        self.holders.set_end(token, if planted!(RenewalSets) { asked } else { before.max(asked) });
        let left = before.since(now);
        Some(Answer::Renewed { longer: (left > ttl + SLACK).then_some(left), waited_for, slot })
    }

    /// Stores the value of a hold, unless the key has another program's value.
    pub(super) fn store(&mut self, value: &StoredValue, until: Moment) {
        if self.value.as_ref().is_none_or(|(stored, _)| stored.is_ours()) {
            self.value = Some((value.clone(), until));
        }
    }

    /// Gives the value of a hold to the waiters that share. They leave the queue and get a message.
    pub(super) fn entitle(&mut self, value: &StoredValue, until: Moment, run: &mut Execution<'_>) {
        if self.shared.as_ref().is_some_and(|(value, ..)| !value.is_ours()) {
            return;
        }
        let mut sharing = BTreeSet::new();
        self.queue.retain(|waiter| {
            let gets_it = waiter.until > run.now
                && Token::from_wire(&waiter.token).shares()
                && run.wake(&waiter.manager, &waiter.token, false);
            if gets_it {
                sharing.insert(Arc::clone(&waiter.token));
            }
            !gets_it
        });
        if !sharing.is_empty() {
            let before = self.shared.take();
            sharing.extend(before.into_iter().flat_map(|(_, tokens, _)| tokens));
            self.shared = Some((value.clone(), sharing, until));
        }
    }

    /// The value of another hold that a token is to have. It is given once; the last one takes it away.
    pub(super) fn collect(&mut self, token: &Arc<str>) -> Option<StoredValue> {
        let (value, sharing, _) = self.shared.as_mut()?;
        if !sharing.remove(token) {
            return None;
        }
        let value = value.clone();
        self.shared.take_if(|(_, sharing, _)| sharing.is_empty());
        self.leave(token);
        Some(value)
    }

    pub(super) fn leave(&mut self, token: &Arc<str>) {
        self.queue.retain(|waiter| waiter.token != *token);
    }

    /// Puts a token at the end of the queue, or keeps its place for longer. Returns whether it was not
    /// there before.
    pub(super) fn enqueue(
        &mut self,
        token: &Arc<str>,
        kind: Kind,
        slotted: bool,
        until: Moment,
        manager: &Arc<str>,
    ) {
        self.queue_end.take_if(|_| self.queue.is_empty());
        // A waiter that asks again a little too late still finds its place.
        self.queue_end = self.queue_end.max(Some(until.after(QUEUE_GRACE)));
        let (token, manager) = (Arc::clone(token), Arc::clone(manager));
        let waiter = StoredWaiter { token, kind, slotted, until, manager };
        match self.queue.iter_mut().find(|other| other.token == waiter.token) {
            Some(place) => *place = waiter,
            None => self.queue.push_back(waiter),
        }
    }

    /// The number of waiters, if it exceeds the limit of a token, which is then taken out. Places that end as
    /// soon as those of calls without a wait don't count. The dead among the first are removed.
    pub(super) fn crowd(
        &mut self,
        token: &Arc<str>,
        most: Option<usize>,
        run: &mut Execution<'_>,
    ) -> Option<usize> {
        let most = most.filter(|most| self.queue.len() >= *most)?;
        let now = run.now;
        let counts = |waiter: &StoredWaiter| waiter.until > now.after(ASK);
        if self.queue.iter().any(|waiter| waiter.token == *token && counts(waiter)) {
            return None;
        }
        self.leave(token);
        let (own, mut at, mut count) = (Token::from_wire(token), 0, self.queue.len());
        self.queue.retain(|waiter| {
            at += 1;
            if at > MOST_CHECKED {
                return true;
            }
            let is_own = || Token::from_wire(&waiter.token).manager() == own.manager();
            let lives = waiter.until > now && (is_own() || run.is_heard(waiter));
            count -= usize::from(!lives || !counts(waiter));
            lives
        });
        (count >= most && !planted!(CrowdNotRefused)).then_some(count)
    }

    /// Whether a newer call than that of a token has come.
    pub(super) fn is_superseded(&self, token: &Arc<str>) -> bool {
        self.latest.back().is_some_and(|last| last != token)
    }

    /// Whether to note a call that ends older ones as the newest, or its answer if it ends.
    pub(super) fn is_new(&mut self, token: &Arc<str>, question: Newest) -> Result<bool, Answer> {
        let is_known = self.has(token) || self.latest.contains(token);
        if planted!(OlderSupersedes) || !is_known && question == Newest::First {
            return Ok(true);
        }
        // A full list may have dropped it, for newer ones. Otherwise the list has ended since, a full server did not
        // note the call, or a fail-over lost it, so nobody knows which calls are newer.
        if !is_known && self.latest.len() < MOST_CHECKED {
            return Err(Answer::Tombstone);
        }
        if self.is_superseded(token) {
            self.leave(token);
            return Err(Answer::Superseded { held: self.has(token) });
        }
        Ok(false)
    }

    /// Adds a token to the last calls, as the newest of them.
    pub(super) fn add_newest(&mut self, token: &Arc<str>) {
        self.latest.push_back(Arc::clone(token));
        self.latest.drain(..self.latest.len().saturating_sub(MOST_CHECKED));
    }

    /// Notes that a call has come until then, which takes the place of the newest before it, if that waits.
    pub(super) fn come_last(&mut self, token: &Arc<str>, until: Moment, run: &mut Execution<'_>) {
        let before = self.latest.back().cloned();
        self.add_newest(token);
        self.latest_end = Some(until);
        let Some(before) = before.filter(|it| self.queue.iter().any(|waiter| waiter.token == *it))
        else {
            return;
        };
        self.leave(token);
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.token == before) {
            let before = std::mem::replace(&mut waiter.token, Arc::clone(token));
            if waiter.until > run.now {
                run.wake(&waiter.manager, &before, false);
            }
        }
    }

    /// Marks the holder of a mutex, so that its release finds out that a client waits, and sends it a
    /// message. One that may keep an idle lease learns of it in no other way, and a message may be lost, so
    /// it gets one at every look of a waiter that listens.
    pub(super) fn ask_to_hand_over(&mut self, key: &str, run: &mut Execution<'_>) {
        let Some(holder) = self.holders.first().filter(|holder| holder.kind.is_value()) else {
            return;
        };
        let (token, was_marked) = (Arc::clone(&holder.token), holder.waited_for);
        self.holders.note_waiter();
        let is_idle = &**run.manager != "-" && Token::from_wire(&token).may_be_idle();
        if !was_marked || is_idle && !planted!(AskedOnce) {
            run.tell_manager_of(&token, Event::WaitedFor { key: key.to_owned() });
        }
    }

    /// Has a holder look whether a newer call has come, if it is one that such calls end.
    pub(super) fn ask_to_leave(holder: Option<&str>, run: &mut Execution<'_>) {
        if let Some(holder) = holder.filter(|holder| Token::from_wire(holder).is_newest())
            && &**run.manager != "-"
        {
            let token = holder.to_owned();
            run.tell_manager_of(holder, Event::Granted { token, waited_for: true });
        }
    }

    /// Whether the holder of a mutex may keep an idle lease.
    pub(super) fn may_be_idle(&self, kind: Kind) -> bool {
        let holder = self.holders.first().filter(|_| kind == Kind::Mutex);
        holder.is_some_and(|holder| Token::from_wire(&holder.token).may_be_idle())
    }

    /// Grants the lock to waiters, from the first on, while they fit. Returns whether no waiter is
    /// left ahead of the token that is asked for, if one is.
    pub(super) fn admit(
        &mut self,
        kind: Kind,
        asker: Option<&Arc<str>>,
        run: &mut Execution<'_>,
    ) -> bool {
        let asks = asker.map(|token| Token::from_wire(token));
        let manager = asks.as_ref().and_then(Token::manager);
        // After a lost connection a manager may ask before it listens again: its waiters are alive.
        let is_own =
            |token: &str| manager.is_some() && Token::from_wire(token).manager() == manager;
        while let Some(head) = self.queue.front() {
            if Some(&head.token) == asker {
                return true;
            }
            let mut lives = head.until > run.now && head.kind.family() == kind.family();
            if lives && !self.fits(head.kind) {
                // Only the first waiter for a mutex is granted it, so its place can stay.
                if kind.is_value() || is_own(&head.token) || run.is_heard(head) {
                    return false;
                }
                lives = false;
            }
            let Some(head) = self.queue.pop_front() else { break };
            let is_marked = kind.is_value() && !self.queue.is_empty();
            if lives && (run.wake(&head.manager, &head.token, is_marked) || is_own(&head.token)) {
                self.put(&head.token, head.kind, run.now.after(CLAIM));
                if head.slotted {
                    self.holders.number(&head.token);
                }
                if kind.is_value() {
                    // The other waiters are looked at when the mutex is free again.
                    return false;
                }
            }
        }
        true
    }

    /// The holder that a new acquisition has to wait for.
    pub(super) fn blocker(&self, kind: Kind, queued: bool, now: Moment) -> Blocker {
        // A permit is free as soon as the first lease ends, a read-write lock when the last one
        // does.
        let holder = match kind.limit() {
            Some(_) => self.holders.first(),
            None => self.holders.last(),
        };
        holder.map_or_else(Blocker::unknown, |holder| Blocker {
            value: Some(holder.token.to_string()),
            ttl: (holder.end != Moment::NEVER).then(|| holder.end.since(now)),
            queued,
            repaired: false,
            asked: false,
        })
    }
}

pub(super) fn end(now: Moment, ttl: Option<Duration>) -> Moment {
    ttl.map_or(Moment::NEVER, |ttl| now.after(ttl))
}
