//! Passes one value to a caller that waits for it.
//!
//! As a channel for one value, but whoever sends it gets the caller's waker, and decides where that is
//! called: a waker may be the user's code.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::task::coop;

use crate::domain::used_arcs::UsedArcs;

/// Passes the value. When it is dropped instead, the caller gets [`NeverSent`].
#[derive(Debug)]
pub(crate) struct OnceSender<T>(Option<Arc<Slot<T>>>);

/// The value that is to come.
#[derive(Debug)]
pub(crate) struct OnceReceiver<T> {
    slot: Arc<Slot<T>>,
    /// Whether a waker was left there.
    waits: bool,
    /// Whether the outcome was taken, so that there is nothing more to look for.
    is_over: bool,
}

/// No value comes any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeverSent;

/// Where the value is passed.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<Stored<T>>);

/// Slots through which values were passed. When their receivers have ended, nothing is left in them.
pub(crate) type UsedSlots<T> = UsedArcs<Slot<T>>;

#[derive(Debug)]
enum Stored<T> {
    Empty(Option<Waker>),
    Value(T),
    /// The value was taken, or one side is gone.
    Over,
}

pub(crate) fn once<T>() -> (OnceSender<T>, OnceReceiver<T>) {
    ends_of(Arc::new(Slot::empty()))
}

/// The same, in a slot that was used before if one is free.
pub(crate) fn once_in<T>(used: &mut UsedSlots<T>) -> (OnceSender<T>, OnceReceiver<T>) {
    ends_of(used.share(Slot::empty()))
}

fn ends_of<T>(slot: Arc<Slot<T>>) -> (OnceSender<T>, OnceReceiver<T>) {
    let sender = OnceSender(Some(Arc::clone(&slot)));
    (sender, OnceReceiver { slot, waits: false, is_over: false })
}

impl<T> Slot<T> {
    fn empty() -> Self {
        Self(Mutex::new(Stored::Empty(None)))
    }

    fn stored(&self) -> MutexGuard<'_, Stored<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, value: T) -> Result<Option<Waker>, T> {
        let mut stored = self.stored();
        match &mut *stored {
            Stored::Empty(waker) => {
                let waker = waker.take();
                *stored = Stored::Value(value);
                Ok(waker)
            }
            Stored::Value(_) | Stored::Over => Err(value),
        }
    }
}

impl<T> OnceSender<T> {
    /// Passes the value, and returns the waker that has to be called, if the caller waits already. The
    /// value comes back when the caller is gone.
    pub(crate) fn put(mut self, value: T) -> Result<Option<Waker>, T> {
        // Taken out, so that dropping `self` need not look again.
        let Some(slot) = self.0.take() else { return Err(value) };
        slot.put(value)
    }

    /// The same, and keeps the slot for another value. Until the caller has ended, it is not free.
    pub(crate) fn put_and_keep(
        mut self,
        value: T,
        used: &mut UsedSlots<T>,
    ) -> Result<Option<Waker>, T> {
        let Some(slot) = self.0.take() else { return Err(value) };
        let outcome = slot.put(value);
        used.keep(slot);
        outcome
    }
}

impl<T> Drop for OnceSender<T> {
    fn drop(&mut self) {
        let Some(slot) = self.0.take() else { return };
        let waker = {
            let mut stored = slot.stored();
            let Stored::Empty(waker) = &mut *stored else { return };
            let waker = waker.take();
            *stored = Stored::Over;
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> OnceReceiver<T> {
    /// The value if it has come. None comes after this.
    pub(crate) fn end(&mut self) -> Option<T> {
        if mem::replace(&mut self.is_over, true) {
            return None;
        }
        let stored = mem::replace(&mut *self.slot.stored(), Stored::Over);
        match stored {
            Stored::Value(value) => Some(value),
            // The waker is dropped here, while nothing is locked.
            Stored::Empty(_) | Stored::Over => None,
        }
    }

    /// The value if it has come; `None` while it may come or when none does.
    pub(crate) fn take(&mut self) -> Option<Result<T, NeverSent>> {
        if self.is_over {
            return Some(Err(NeverSent));
        }
        let mut stored = self.slot.stored();
        if let Stored::Empty(_) = &*stored {
            return None;
        }
        self.is_over = true;
        match mem::replace(&mut *stored, Stored::Over) {
            Stored::Value(value) => Some(Ok(value)),
            Stored::Empty(_) | Stored::Over => Some(Err(NeverSent)),
        }
    }

    /// Has this waker called. Returns `false` when there is nothing to wait for any more.
    fn register(&mut self, waker: Waker) -> bool {
        let before = {
            let mut stored = self.slot.stored();
            let Stored::Empty(before) = &mut *stored else { return false };
            before.replace(waker)
        };
        self.waits = true;
        drop(before);
        true
    }
}

impl<T> Future for OnceReceiver<T> {
    type Output = Result<T, NeverSent>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A task whose answers are always there at once lets others run now and then.
        let budget = ready!(coop::poll_proceed(context));
        // The first time there is mostly no value yet, and later there mostly is one.
        let mut taken = if self.waits || self.is_over { self.take() } else { None };
        if taken.is_none() && !self.register(context.waker().clone()) {
            taken = self.take();
        }
        taken.map_or(Poll::Pending, |outcome| {
            budget.made_progress();
            Poll::Ready(outcome)
        })
    }
}

impl<T> Drop for OnceReceiver<T> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use testbed::WakeLog;

    use super::*;

    fn polled<T>(receiver: &mut OnceReceiver<T>, log: &Arc<WakeLog>) -> Poll<Result<T, NeverSent>> {
        pin!(receiver).poll(&mut Context::from_waker(&log.waker()))
    }

    #[test]
    fn the_latest_waker_is_left_to_whoever_puts_the_value() {
        let (sender, mut receiver) = once();
        let (first, second) = (WakeLog::new(), WakeLog::new());
        assert!(polled(&mut receiver, &first).is_pending());
        assert!(polled(&mut receiver, &second).is_pending());
        let waker = sender.put(7).unwrap().expect("it waits");
        assert_eq!(second.count(), 0);
        waker.wake();
        assert_eq!((first.count(), second.count()), (0, 1));
        assert_eq!(polled(&mut receiver, &first), Poll::Ready(Ok(7)));
        assert_eq!(polled(&mut receiver, &first), Poll::Ready(Err(NeverSent)));
    }

    #[test]
    fn a_value_that_comes_first_wakes_nobody() {
        let (sender, mut receiver) = once();
        assert!(sender.put(7).unwrap().is_none());
        assert_eq!(polled(&mut receiver, &WakeLog::new()), Poll::Ready(Ok(7)));
    }

    #[test]
    fn who_waits_learns_that_no_value_comes() {
        let (sender, mut receiver) = once::<u32>();
        let log = WakeLog::new();
        assert!(polled(&mut receiver, &log).is_pending());
        drop(sender);
        assert_eq!(log.count(), 1);
        assert_eq!(polled(&mut receiver, &log), Poll::Ready(Err(NeverSent)));
    }

    #[test]
    fn a_value_for_nobody_comes_back() {
        let (sender, receiver) = once();
        drop(receiver);
        assert!(matches!(sender.put(7), Err(7)));
        let (sender, mut receiver) = once();
        assert_eq!(receiver.end(), None);
        assert!(matches!(sender.put(7), Err(7)));
    }

    #[test]
    fn who_ends_gets_what_has_come() {
        let (sender, mut receiver) = once();
        sender.put(7).unwrap();
        assert_eq!(receiver.end(), Some(7));
        assert_eq!(receiver.end(), None);
    }

    #[test]
    fn a_value_that_comes_while_the_caller_begins_to_wait_is_found() {
        let (sender, mut receiver) = once();
        sender.put(7).unwrap();
        assert!(!receiver.register(WakeLog::new().waker()));
        assert_eq!(receiver.take(), Some(Ok(7)));
        let (sender, mut receiver) = once::<u32>();
        assert!(polled(&mut receiver, &WakeLog::new()).is_pending());
        receiver.end();
        assert!(matches!(sender.put(7), Err(7)), "who has ended gets nothing");
        assert_eq!(polled(&mut receiver, &WakeLog::new()), Poll::Ready(Err(NeverSent)));
    }

    #[test]
    fn a_slot_is_used_again_when_both_sides_have_ended_and_is_empty_then() {
        let mut used = UsedSlots::default();
        let (sender, mut receiver) = once_in(&mut used);
        let log = WakeLog::new();
        assert!(polled(&mut receiver, &log).is_pending());
        let at = Arc::as_ptr(&receiver.slot);
        drop(sender.put_and_keep(7, &mut used));
        let (other, _other_receiver) = once_in(&mut used);
        assert!(
            other.0.as_ref().is_some_and(|slot| Arc::as_ptr(slot) != at),
            "it may still be read"
        );
        assert_eq!(polled(&mut receiver, &log), Poll::Ready(Ok(7)));
        drop(receiver);
        let (sender, mut receiver) = once_in(&mut used);
        assert_eq!(Arc::as_ptr(&receiver.slot), at);
        assert!(polled(&mut receiver, &log).is_pending());
        assert_eq!(sender.put(8).map(|waker| waker.is_some()), Ok(true));
        assert_eq!(polled(&mut receiver, &log), Poll::Ready(Ok(8)));
    }

    #[test]
    fn a_slot_whose_caller_was_gone_is_used_again_as_well() {
        let mut used = UsedSlots::default();
        let (sender, receiver) = once_in(&mut used);
        let at = Arc::as_ptr(&receiver.slot);
        drop(receiver);
        assert!(matches!(sender.put_and_keep(7, &mut used), Err(7)));
        let (sender, mut receiver) = once_in(&mut used);
        assert_eq!(Arc::as_ptr(&receiver.slot), at);
        assert!(sender.put(8).is_ok());
        assert_eq!(receiver.end(), Some(8));
    }

    #[test]
    fn a_task_with_a_value_each_time_lets_others_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let polls = runtime.block_on(async {
            let other = tokio::spawn(async {});
            let mut polls = 0;
            while !other.is_finished() && polls < 100_000 {
                let (sender, receiver) = once();
                sender.put(()).unwrap();
                receiver.await.unwrap();
                polls += 1;
            }
            polls
        });
        assert!(polls < 100_000);
    }
}
