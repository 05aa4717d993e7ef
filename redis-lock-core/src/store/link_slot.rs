//! Where a task leaves a new connection for whoever reads, and how that is watched.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::{Readiness, SharedNews, TaskWaker, Watcher};
use crate::domain::error::Fault;

/// Where a new connection is left for the reader, and how to watch it.
pub(crate) struct LinkSlot<T> {
    state: Mutex<SlotState<T>>,
    news: SharedNews,
}

struct SlotState<T> {
    made: Option<Result<T, Fault>>,
    /// That of the latest connection, with its number.
    watcher: Option<(u64, Watcher)>,
    number: u64,
}

impl<T> Default for LinkSlot<T> {
    fn default() -> Self {
        let state = SlotState { made: None, watcher: None, number: 0 };
        Self { state: Mutex::new(state), news: SharedNews::default() }
    }
}

impl<T> LinkSlot<T> {
    /// Leaves a connection with its watcher, or why there is none.
    pub(crate) fn put(&self, made: Result<(T, Option<Watcher>), Fault>) {
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        (state.made, state.watcher) = match made {
            Ok((link, watcher)) => (Some(Ok(link)), watcher.map(|watcher| (number, watcher))),
            Err(fault) => (Some(Err(fault)), None),
        };
        drop(state);
        self.news.wake();
    }

    pub(crate) fn take(&self) -> Option<Result<T, Fault>> {
        self.state().made.take()
    }

    pub(crate) fn watcher(&self) -> Option<(u64, Watcher)> {
        self.state().watcher.clone()
    }

    /// A connection that is closed is not watched.
    pub(crate) fn forget(&self) {
        self.state().watcher = None;
    }

    fn state(&self) -> MutexGuard<'_, SlotState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches a slot, and the connection that was last left in it.
pub(crate) struct SlotWatch<T> {
    slot: Arc<LinkSlot<T>>,
    /// That something was left in the slot.
    news: Arc<TaskWaker>,
    /// That of the connection, with its number.
    link: Mutex<Option<(u64, Box<dyn Readiness>)>>,
}

impl<T> SlotWatch<T> {
    pub(crate) fn new(slot: Arc<LinkSlot<T>>) -> Self {
        let news = slot.news.watch();
        Self { slot, news, link: Mutex::default() }
    }

    /// Ready when something was left in the slot.
    pub(crate) fn poll_news(&self, context: &Context<'_>) -> Poll<()> {
        self.news.poll_woken(context)
    }

    /// Ready when something was left in the slot, or has arrived on the connection.
    pub(crate) fn poll_ready(
        &self,
        context: &mut Context<'_>,
        sending: bool,
    ) -> Poll<io::Result<()>> {
        if self.poll_news(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut watched = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.slot.watcher();
        let known = watched.as_ref().map(|(number, _)| *number);
        if known != present.as_ref().map(|(number, _)| *number) {
            // What can't be registered, as for want of file descriptors, is tried again at the next
            // poll. Until then it is read whenever anything is: registering all anew would fail the
            // same way, again and again.
            *watched = present.and_then(|(number, watcher)| Some((number, watcher().ok()?)));
        }
        match &*watched {
            Some((_, readiness)) => readiness.poll_ready(context, sending),
            None => Poll::Pending,
        }
    }
}
