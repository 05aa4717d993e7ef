//! Holds that are given away: who gets their tokens, and what must be true of these.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::books::{Books, CallRecord, Ended};
use super::world::World;
use super::{clock, full_key};

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
    copied: BTreeSet<Arc<str>>,
    /// The process that got the confirmation that it has released an adopted hold.
    ended_by: BTreeMap<Arc<str>, usize>,
    /// The process that shut down while it had it.
    leaves_with: BTreeMap<Arc<str>, usize>,
}

impl Heritage {
    /// Decides what the heir of a planned call gets, unless that is decided.
    pub(super) fn give(&mut self, planned: usize, gift: Option<Gift>) {
        self.gifts.entry(planned).or_insert(gift);
        self.waiting.drain(..).for_each(Waker::wake);
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

/// Waits for what a planned call gives away.
pub(super) fn given(
    books: &Rc<RefCell<Books>>,
    planned: usize,
) -> impl Future<Output = Option<Gift>> + use<> {
    let books = Rc::clone(books);
    poll_fn(move |context| {
        let heritage = &mut books.borrow_mut().heritage;
        if let Some(gift) = heritage.gifts.get(&planned) {
            return Poll::Ready(gift.clone());
        }
        heritage.waiting.push(context.waker().clone());
        Poll::Pending
    })
}

impl World {
    /// A process begins to shut down: what it has adopted is not left behind, and others that have
    /// the same token lose it.
    pub(super) fn end_heritage(&mut self, process: usize) {
        let mut books = self.books.borrow_mut();
        let of_it = books.holds.iter().filter(|note| note.process == process);
        let of_it: Vec<_> = of_it.filter(|note| self.is_valid(note)).cloned().collect();
        for note in of_it {
            let token = Arc::clone(note.hold.token.wire());
            if books.heritage.is_given(&token) {
                books.heritage.leaves_with.insert(token, process);
            }
        }
        for token in &books.heritage.copied {
            self.server.note(token).is_excused = true;
        }
    }

    /// A hold that an heir has released is gone, or the heir knows that it may come back.
    pub(super) fn check_heritage(&self) {
        let books = Rc::clone(&self.books);
        for (key, token) in self.server.present(clock::now()) {
            let ended_by = books.borrow().heritage.ended_by.get(token).copied();
            let Some(process) = ended_by.map(|it| &self.processes[it]) else { continue };
            if !process.is_alive || process.is_closing {
                continue;
            }
            let (in_machines, leaving) = process.core.tokens();
            if !in_machines.contains(token) && !leaving.contains(token) {
                let what = "has released what it adopted, and forgotten";
                return self.violated(format!("p{} {what} {token} at {key}", process.index));
            }
        }
    }

    /// A shutdown without trouble leaves nothing of what the process had adopted.
    pub(super) fn check_left_heritage(&self, process: usize) {
        let books = Rc::clone(&self.books);
        for (key, token) in self.server.present(clock::now()) {
            if books.borrow().heritage.leaves_with.get(token) == Some(&process) {
                return self.violated(format!("adopted {token} is left at {key} by a shutdown"));
            }
        }
    }

    /// An adoption succeeds when its token has the lock, and only then.
    pub(super) fn check_adopted(&self, call: &CallRecord, how: &Ended) {
        let Some(token) = &call.token else { return };
        let is_given = self.books.borrow().heritage.is_given(token);
        if matches!(how, Ended::Good) && !is_given {
            return self.violated(format!("call {} adopted what nobody gave away", call.number));
        }
        let now = clock::now();
        let has = |key: &usize| {
            self.server.lease_end(&full_key(*key), token).is_some_and(|end| end > now)
        };
        // A hold whose token is in doubt may have come back since.
        let is_doubtful = self.server.tokens.get(token).is_some_and(|note| note.is_doubtful);
        if how.is_taken() && is_given && !is_doubtful && call.keys.iter().all(has) {
            self.violated(format!("call {} could not adopt what {token} has", call.number));
        }
    }
}
