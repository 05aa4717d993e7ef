//! What arrives for the reader without a socket of its own.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use super::TaskWaker;
use crate::sync::NonPoisonMutex;

/// What a task has received for the reader.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    items: NonPoisonMutex<VecDeque<T>>,
    news: TaskWaker,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: NonPoisonMutex::default(), news: TaskWaker::default() }
    }
}

impl<T> Inbox<T> {
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

    /// Ready when something may have come.
    pub(crate) fn poll_news(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.news.poll_woken(context).map(Ok)
    }
}
