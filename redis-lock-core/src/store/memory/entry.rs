//! One lock: who has it, who waits, and who may join whom.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Publish;
use super::fences::Last;
use super::holders::{Holders, StoredHolder};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Answer, Blocker, CLAIM};

/// So much longer than asked for a lease may run before a renewal says so.
const SLACK: Duration = Duration::from_secs(1);

/// How long places in a queue that have ended are remembered.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// What stands at one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// All of one sort: see [`Entry::mixes`].
    pub(crate) holders: Holders,
    /// In the order of their coming.
    pub(crate) queue: VecDeque<StoredWaiter>,
    /// When the whole queue is forgotten, unless somebody asks again.
    pub(crate) queue_end: Option<Moment>,
    pub(crate) fence: Option<Last>,
    /// By token: which are not let in any more.
    pub(crate) tombs: BTreeMap<Arc<str>, Tomb>,
}

/// Keeps a token out.
#[derive(Clone, Debug)]
pub(crate) struct Tomb {
    /// Why its hold was ended by force; empty where it was not.
    pub(crate) reason: Arc<str>,
    pub(crate) until: Moment,
}

/// Who waits for it.
#[derive(Clone, Debug)]
pub(crate) struct StoredWaiter {
    pub(crate) token: Arc<str>,
    pub(crate) kind: Kind,
    /// The end of its place when it does not ask again.
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
        self.tombs.retain(|_, tomb| tomb.until > now);
        self.fence.take_if(|last| last.is_forgotten(now));
    }

    /// Whether nothing is left to be remembered.
    pub(super) fn is_blank(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.holders.is_empty()
            && self.queue.is_empty()
            && self.tombs.is_empty()
            && self.fence.is_none()
    }

    /// Whether at most a fencing number is left.
    #[cfg(test)]
    pub(crate) fn is_free_of_locks(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.holders.is_empty() && self.queue.is_empty() && self.tombs.is_empty()
    }

    pub(super) fn is_buried(&self, token: &Arc<str>) -> bool {
        self.tombs.contains_key(token) && !planted!(TombIgnored)
    }

    pub(super) fn bury(&mut self, token: &Arc<str>, reason: &Arc<str>, until: Moment) {
        let tomb = Tomb { reason: Arc::clone(reason), until };
        self.tombs.insert(Arc::clone(token), tomb);
    }

    pub(super) fn has(&self, token: &Arc<str>) -> bool {
        self.holders.get(token).is_some()
    }

    /// Fails when the lock is held as another kind.
    pub(super) fn mixes(&self, kind: Kind) -> Result<(), Fault> {
        match self.holders.first() {
            Some(holder) if holder.kind.family() != kind.family() => {
                let what = format!(
                    "the key is in use as {}; one key can't be several kinds of lock",
                    holder.kind.family().description()
                );
                Err(Fault::new(FaultClass::Misuse, what))
            }
            _ => Ok(()),
        }
    }

    /// Whether one more fits beside those who hold now.
    pub(super) fn fits(&self, kind: Kind) -> bool {
        match kind.limit() {
            _ if kind.traits().is_exclusive => self.holders.is_empty(),
            Some(limit) => {
                self.holders.len() < usize::try_from(self.least(limit)).unwrap_or(usize::MAX)
            }
            // A writer has it alone, so the first speaks for all.
            None => self.holders.first().is_none_or(|holder| holder.kind == kind),
        }
    }

    /// The smallest number of permits that anybody here allows.
    pub(super) fn least(&self, limit: u32) -> u32 {
        self.holders.least_limit().map_or(limit, |least| least.min(limit))
    }

    /// Lets a token have the lock, no shorter than it has it already.
    pub(super) fn put(&mut self, token: &Arc<str>, kind: Kind, end: Moment) {
        let waited_for = kind.is_value() && !self.queue.is_empty();
        match self.holders.get(token) {
            Some(holder) => {
                let end = end.max(holder.end);
                self.holders.set_end(token, end);
            }
            None => {
                let token = Arc::clone(token);
                self.holders.add(StoredHolder { token, kind, end, waited_for });
            }
        }
    }

    /// Lets the lease of a token run for so long from now, unless it runs longer.
    pub(super) fn renew(
        &mut self,
        token: &Arc<str>,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Option<Answer> {
        let holder = self.holders.get(token)?;
        let (before, waited_for) = (holder.end, holder.waited_for);
        let Some(ttl) = ttl else { return Some(Answer::Renewed { longer: None, waited_for }) };
        let asked = now.after(ttl);
        self.holders.set_end(token, if planted!(RenewalSets) { asked } else { before.max(asked) });
        let left = before.since(now);
        Some(Answer::Renewed { longer: (left > ttl + SLACK).then_some(left), waited_for })
    }

    pub(super) fn leave(&mut self, token: &Arc<str>) {
        self.queue.retain(|waiter| waiter.token != *token);
    }

    /// Puts a token at the end of the queue, or keeps its place for longer.
    pub(super) fn enqueue(
        &mut self,
        token: &Arc<str>,
        kind: Kind,
        until: Moment,
        manager: &Arc<str>,
    ) {
        self.queue_end.take_if(|_| self.queue.is_empty());
        // Who comes too late, and finds its place still there, may have it.
        self.queue_end = self.queue_end.max(Some(until.after(REST)));
        let waiter =
            StoredWaiter { token: Arc::clone(token), kind, until, manager: Arc::clone(manager) };
        match self.queue.iter_mut().find(|waiter| waiter.token == *token) {
            Some(place) => *place = waiter,
            None => self.queue.push_back(waiter),
        }
    }

    /// Lets the holders of a mutex learn that somebody waits.
    pub(super) fn mark(&mut self) {
        if self.holders.first().is_some_and(|holder| holder.kind.is_value()) {
            self.holders.note_waiter();
        }
    }

    /// Whether the holder of a mutex may have nobody inside.
    pub(super) fn may_be_idle(&self, kind: Kind) -> bool {
        let holder = self.holders.first().filter(|_| kind == Kind::Mutex);
        holder.is_some_and(|holder| Token::from_wire(&holder.token).may_be_idle())
    }

    /// Lets waiters in, from the first on, while they fit. Returns whether nobody is left before
    /// `me`.
    pub(super) fn admit(
        &mut self,
        kind: Kind,
        me: Option<&Arc<str>>,
        now: Moment,
        publish: Publish<'_>,
    ) -> bool {
        while let Some(head) = self.queue.front() {
            if Some(&head.token) == me {
                return true;
            }
            let mut lives = head.until > now && head.kind.family() == kind.family();
            if lives && !self.fits(head.kind) {
                // Nobody is let in past the first who waits for a mutex, so it can stay.
                if kind.is_value() || publish(&head.manager, None) {
                    return false;
                }
                lives = false;
            }
            let Some(head) = self.queue.pop_front() else { break };
            if lives && publish(&head.manager, Some(&head.token)) {
                self.put(&head.token, head.kind, now.after(CLAIM));
                if kind.is_value() {
                    // Who comes behind is looked at when it is free again.
                    return false;
                }
            }
        }
        true
    }

    /// Whom one who wants in has to wait for.
    pub(super) fn blocker(&self, kind: Kind, queued: bool, now: Moment) -> Blocker {
        // A permit is free when the first holder is gone, a lock for reading or writing after the
        // last.
        let holder = match kind.limit() {
            Some(_) => self.holders.soonest(),
            None => self.holders.latest(),
        };
        holder.map_or(Blocker { queued, ..Blocker::unknown() }, |holder| Blocker {
            value: Some(holder.token.to_string()),
            ttl: (holder.end != Moment::NEVER).then(|| holder.end.since(now)),
            queued,
            repaired: false,
            asked: false,
            is_far: false,
        })
    }
}

pub(super) fn end(now: Moment, ttl: Option<Duration>) -> Moment {
    ttl.map_or(Moment::NEVER, |ttl| now.after(ttl))
}
