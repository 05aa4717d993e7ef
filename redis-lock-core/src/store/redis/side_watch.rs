//! Watches the connection for commands, and a second one beside it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use super::side_link::LineSlot;
use crate::store::{Readiness, TaskWaker, Watcher};

/// Also watches the connections that are left in the slot.
pub(super) fn watch_beside(inner: Watcher, slot: Arc<LineSlot>) -> Watcher {
    Arc::new(move || {
        let (inner, slot) = (inner()?, Arc::clone(&slot));
        let news = slot.watch();
        Ok(Box::new(SideWatch { inner, slot, news, line: Mutex::default() }) as _)
    })
}

/// Ready when one of the two connections has something.
struct SideWatch {
    inner: Box<dyn Readiness>,
    slot: Arc<LineSlot>,
    /// That something was left in the slot.
    news: Arc<TaskWaker>,
    /// That of the second connection, with its number.
    line: Mutex<Option<(u64, Box<dyn Readiness>)>>,
}

impl SideWatch {
    /// Registers the present connection where the first one is registered.
    fn poll_line(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut watched = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.slot.watcher();
        let known = watched.as_ref().map(|(number, _)| *number);
        if known != present.as_ref().map(|(number, _)| *number) {
            *watched = match present {
                Some((number, watcher)) => Some((number, watcher()?)),
                None => None,
            };
        }
        match &*watched {
            Some((_, readiness)) => readiness.poll_ready(context, false),
            None => Poll::Pending,
        }
    }
}

impl Readiness for SideWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        if let ready @ Poll::Ready(_) = self.inner.poll_ready(context, sending) {
            return ready;
        }
        match self.news.poll_woken(context) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => self.poll_line(context),
        }
    }
}
