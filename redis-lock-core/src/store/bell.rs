//! Wakes a thread that waits at a socket.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A pipe from those who wake to the thread that waits.
pub(crate) struct Bell {
    writer: UnixStream,
    reader: UnixStream,
}

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

impl Bell {
    /// The bell of this thread, made when it is first needed; `None` when the process has no more
    /// descriptors.
    pub(super) fn of_this_thread() -> Option<Arc<Self>> {
        let known = BELL.try_with(|bell| bell.borrow().clone()).ok()?;
        if known.is_some() {
            return known;
        }
        let (writer, reader) = UnixStream::pair().ok()?;
        writer.set_nonblocking(true).ok()?;
        reader.set_nonblocking(true).ok()?;
        let made = Arc::new(Self { writer, reader });
        let _ = BELL.try_with(|bell| bell.replace(Some(Arc::clone(&made))));
        Some(made)
    }

    pub(super) fn ring(&self) {
        // When the buffer is full, it rings already.
        let _ = (&self.writer).write(&[0]);
    }

    pub(super) fn silence(&self) {
        let _ = (&self.reader).read(&mut [0; 64]);
    }

    /// Waits at a socket: what `Pollable::wait` promises.
    pub(crate) fn wait_with(
        &self,
        socket: &impl AsFd,
        sending: bool,
        limit: Duration,
    ) -> io::Result<bool> {
        let writable = if sending { PollFlags::OUT } else { PollFlags::empty() };
        let mut watched = [
            PollFd::new(socket, PollFlags::IN | writable),
            PollFd::new(&self.reader, PollFlags::IN),
        ];
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        poll(&mut watched, Some(&limit))?;
        let [_, bell] = watched;
        Ok(!bell.revents().is_empty())
    }
}
