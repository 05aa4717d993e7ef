//! Holds that are given away, and who gets their tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// A token on its way to an heir, as text.
#[derive(Clone, Debug)]
pub(super) struct Gift {
    pub(super) text: String,
    /// The hold is a writer's.
    pub(super) writes: bool,
}

/// The fate of holds that were given away.
#[derive(Default)]
pub(super) struct Heritage {
    /// By the number of the planned call that gives; `None` when nothing came of it.
    gifts: BTreeMap<usize, Option<Gift>>,
    waiting: Vec<Waker>,
    given: BTreeSet<Arc<str>>,
    /// Tokens that two heirs have, so that one of them may end the hold of the other.
    pub(super) copied: BTreeSet<Arc<str>>,
    /// The process that got the confirmation that it has released an adopted hold.
    pub(super) ended_by: BTreeMap<Arc<str>, usize>,
    /// The process that shut down while it had it.
    pub(super) leaves_with: BTreeMap<Arc<str>, usize>,
}

impl Heritage {
    /// Decides what the heir of a planned call gets, unless that is decided.
    pub(super) fn give(&mut self, planned: usize, gift: Option<Gift>) {
        self.gifts.entry(planned).or_insert(gift);
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// What a planned call gave away; wakes the heir when that is decided.
    pub(super) fn given(&mut self, planned: usize, heir: &Waker) -> Poll<Option<Gift>> {
        if let Some(gift) = self.gifts.get(&planned) {
            return Poll::Ready(gift.clone());
        }
        self.waiting.push(heir.clone());
        Poll::Pending
    }

    /// A guard with this token was detached.
    pub(super) fn detached(&mut self, token: &Arc<str>) {
        self.given.insert(Arc::clone(token));
        self.leaves_with.remove(token);
    }

    pub(super) fn copied(&mut self, token: &Arc<str>) {
        self.copied.insert(Arc::clone(token));
    }

    pub(super) fn is_given(&self, token: &Arc<str>) -> bool {
        self.given.contains(token)
    }

    pub(super) fn is_copied(&self, token: &Arc<str>) -> bool {
        self.copied.contains(token)
    }

    /// A release of the adopted token was confirmed.
    pub(super) fn ended(&mut self, token: &Arc<str>, process: usize) {
        self.ended_by.insert(Arc::clone(token), process);
    }
}
