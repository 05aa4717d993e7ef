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
            // What can't be registered, as for want of file descriptors, is tried again at the next
            // poll. Until then it is read whenever anything is: registering all anew would fail the
            // same way, again and again.
            *watched = present.and_then(|(number, watcher)| Some((number, watcher().ok()?)));
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

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use testbed::WakeLog;
    use tokio::runtime::Builder;

    use super::*;
    use crate::store::redis::direct_line::DirectLine;
    use crate::store::redis::socket::Socket;

    struct Silent;

    impl Readiness for Silent {
        fn poll_ready(&self, _: &mut Context<'_>, _: bool) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_connection_that_cannot_be_watched_does_not_keep_the_first_one_from_it() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        // No runtime can watch a file.
        let file = UnixStream::from(OwnedFd::from(File::open("Cargo.toml").unwrap()));
        file.set_nonblocking(true).unwrap();
        let slot = Arc::new(LineSlot::default());
        slot.put(Ok(DirectLine::over(Socket::Unix(Arc::new(file)))));
        assert!(slot.watcher().is_some_and(|(_, watcher)| watcher().is_err()));
        let watcher = watch_beside(Arc::new(|| Ok(Box::new(Silent) as _)), slot);
        let (readiness, wakes) = (watcher().unwrap(), WakeLog::new());
        let task = wakes.waker();
        let mut context = Context::from_waker(&task);
        assert!(readiness.poll_ready(&mut context, false).is_ready(), "there is a new connection");
        assert!(readiness.poll_ready(&mut context, false).is_pending());
    }
}
