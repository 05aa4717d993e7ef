//! Watches the connection for commands, and the one that waits for replicas.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::store::Readiness;
use crate::store::redis::wait_link::LineSlot;

/// Ready when one of the two connections has something.
pub(super) struct ReplicaWatch {
    inner: Box<dyn Readiness>,
    slot: Arc<LineSlot>,
    /// That of the second connection, with its number.
    line: Mutex<Option<(u64, Box<dyn Readiness>)>>,
}

impl ReplicaWatch {
    pub(super) fn new(inner: Box<dyn Readiness>, slot: Arc<LineSlot>) -> Self {
        Self { inner, slot, line: Mutex::default() }
    }

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

impl Readiness for ReplicaWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        if let ready @ Poll::Ready(_) = self.inner.poll_ready(context, sending) {
            return ready;
        }
        match self.slot.poll_filled(context) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => self.poll_line(context),
        }
    }
}
