//! Watches the connection for commands, and a second one beside it.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::direct_line::DirectLine;
use super::side_link::LineSlot;
use crate::store::link_slot::SlotWatch;
use crate::store::{Readiness, Watcher};

/// Also watches the connections that are left in the slot.
pub(super) fn watch_beside(inner: Watcher, slot: Arc<LineSlot>) -> Watcher {
    Arc::new(move || {
        let (inner, line) = (inner()?, SlotWatch::new(Arc::clone(&slot)));
        Ok(Box::new(SideWatch { inner, line }) as _)
    })
}

/// Ready when one of the two connections has something.
struct SideWatch {
    inner: Box<dyn Readiness>,
    line: SlotWatch<DirectLine>,
}

impl Readiness for SideWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        match self.inner.poll_ready(context, sending) {
            Poll::Pending => self.line.poll_ready(context, false),
            ready @ Poll::Ready(_) => ready,
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
        let line = DirectLine::over(Socket::Unix(Arc::new(file)));
        let line_watcher = line.watcher();
        slot.put(Ok((line, Some(line_watcher))));
        assert!(slot.watcher().is_some_and(|(_, watcher)| watcher().is_err()));
        let watcher = watch_beside(Arc::new(|| Ok(Box::new(Silent) as _)), slot);
        let (readiness, wakes) = (watcher().unwrap(), WakeLog::new());
        let task = wakes.waker();
        let mut context = Context::from_waker(&task);
        assert!(readiness.poll_ready(&mut context, false).is_ready(), "there is a new connection");
        assert!(readiness.poll_ready(&mut context, false).is_pending());
    }
}
