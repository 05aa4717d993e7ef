//! Wakes a thread that waits at a socket.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::domain::env;

/// A pipe by which other threads wake the thread that waits.
pub(crate) struct Bell {
    writer: UnixStream,
    reader: UnixStream,
    /// The process that made it. A forked child must not take wake-ups that are for its parent.
    process: u32,
}

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

impl Bell {
    /// The bell of this thread, made when it is first needed; `None` when the process has no more
    /// descriptors.
    pub(super) fn of_this_thread() -> Option<Arc<Self>> {
        let process = env::process();
        let known = BELL.try_with(|bell| bell.borrow().clone()).ok()?;
        let known = known.filter(|bell| bell.process == process);
        if known.is_some() {
            return known;
        }
        let (writer, reader) = UnixStream::pair().ok()?;
        writer.set_nonblocking(true).ok()?;
        reader.set_nonblocking(true).ok()?;
        let made = Arc::new(Self { writer, reader, process });
        let _ = BELL.try_with(|bell| bell.replace(Some(Arc::clone(&made))));
        Some(made)
    }

    pub(super) fn ring(&self) {
        // A full pipe wakes the thread already.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_has_a_bell_of_its_own() {
        env::simulated::begin(0, 1);
        let own = Bell::of_this_thread().unwrap();
        assert!(Arc::ptr_eq(&own, &Bell::of_this_thread().unwrap()));
        env::simulated::set_process(2);
        let child = Bell::of_this_thread().unwrap();
        env::simulated::end();
        own.ring();
        assert!(!Arc::ptr_eq(&own, &child));
        let silent = UnixStream::pair().unwrap();
        assert!(!child.wait_with(&silent.0, false, Duration::ZERO).unwrap());
        assert!(own.wait_with(&silent.0, false, Duration::ZERO).unwrap());
    }
}
