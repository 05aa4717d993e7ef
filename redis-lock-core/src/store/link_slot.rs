//! Leaves new connections for the reader, and watches them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Readiness, SharedNews, TaskWaker, Watcher};
use crate::domain::fault::Fault;
use crate::sync::NonPoisonMutex;

/// Where a new connection is left for the reader, and how to watch it.
pub(crate) struct LinkSlot<T> {
    state: NonPoisonMutex<SlotState<T>>,
    news: SharedNews,
}

struct SlotState<T> {
    made: Option<Result<T, Fault>>,
    /// That of the latest connection.
    watched: Option<Watcher>,
}

impl<T> Default for LinkSlot<T> {
    fn default() -> Self {
        let state = SlotState { made: None, watched: None };
        Self { state: NonPoisonMutex::new(state), news: SharedNews::default() }
    }
}

impl<T> LinkSlot<T> {
    /// Leaves a connection with its watcher, or why there is none.
    pub(crate) fn put(&self, made: Result<(T, Watcher), Fault>) {
        let mut state = self.state.lock();
        (state.made, state.watched) = match made {
            Ok((link, watcher)) => (Some(Ok(link)), Some(watcher)),
            Err(fault) => (Some(Err(fault)), None),
        };
        drop(state);
        self.news.wake();
    }

    pub(crate) fn take(&self) -> Option<Result<T, Fault>> {
        self.state.lock().made.take()
    }

    pub(crate) fn watcher(&self) -> Option<Watcher> {
        self.state.lock().watched.clone()
    }

    /// A connection that is closed is not watched.
    pub(crate) fn forget(&self) {
        self.state.lock().watched = None;
    }
}

/// Watches a slot, and the connection that was last left in it.
pub(crate) struct SlotWatch<T> {
    slot: Arc<LinkSlot<T>>,
    /// That something was left in the slot.
    news: Arc<TaskWaker>,
    /// That of the connection, with what it was made by.
    link: NonPoisonMutex<Option<(Watcher, Box<dyn Readiness>)>>,
}

impl<T> SlotWatch<T> {
    pub(crate) fn new(slot: Arc<LinkSlot<T>>) -> Self {
        let news = slot.news.watch();
        Self { slot, news, link: NonPoisonMutex::default() }
    }

    /// Ready when something was left in the slot.
    fn poll_news(&self, context: &Context<'_>) -> Poll<()> {
        self.news.poll_woken(context)
    }
}

impl<T: Send> Readiness for SlotWatch<T> {
    /// Ready when something was left in the slot, or has arrived on the connection.
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        if self.poll_news(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut watched = self.link.lock();
        let present = self.slot.watcher();
        let is_present = |(known, _): &(Watcher, _)| {
            present.as_ref().is_some_and(|present| Arc::ptr_eq(known, present))
        };
        if !watched.as_ref().is_some_and(is_present) {
            // What can't be registered, as for want of file descriptors, is tried again at the next
            // poll. Until then it is read whenever anything is: registering all anew would fail the
            // same way, again and again.
            *watched = present.and_then(|watcher| watcher().ok().map(|made| (watcher, made)));
        }
        match &*watched {
            Some((_, readiness)) => readiness.poll_ready(context, sending),
            None => Poll::Pending,
        }
    }
}

/// What a task has received for the reader.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    items: NonPoisonMutex<VecDeque<T>>,
    news: SharedNews,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: NonPoisonMutex::default(), news: SharedNews::default() }
    }
}

impl<T: Send + 'static> Inbox<T> {
    pub(crate) fn put(&self, item: T) {
        self.items.lock().push_back(item);
        self.news.wake();
    }

    pub(crate) fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.items.lock())
    }

    /// Has the reader look although nothing has come.
    pub(crate) fn wake(&self) {
        self.news.wake();
    }

    /// Watches for what comes. There is always room to send more.
    pub(crate) fn watcher(self: &Arc<Self>) -> Watcher {
        let inbox = Arc::clone(self);
        Arc::new(move || Ok(Box::new(InboxWatch(inbox.news.watch())) as _))
    }
}

struct InboxWatch(Arc<TaskWaker>);

impl Readiness for InboxWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        if sending { Poll::Ready(Ok(())) } else { self.0.poll_woken(context).map(Ok) }
    }
}

/// Watches two connections, of which the reader sends on the first.
pub(crate) fn both(first: Watcher, second: Watcher) -> Watcher {
    Arc::new(move || Ok(Box::new(BothWatch(first()?, second()?)) as _))
}

struct BothWatch(Box<dyn Readiness>, Box<dyn Readiness>);

impl Readiness for BothWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        match self.0.poll_ready(context, sending) {
            Poll::Pending => self.1.poll_ready(context, false),
            ready @ Poll::Ready(_) => ready,
        }
    }
}
