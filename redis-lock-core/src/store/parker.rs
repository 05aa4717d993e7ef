//! Puts a thread to sleep until it is woken, also while it waits at a socket.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Duration;

use super::Bell;

/// A socket that a thread can wait at.
pub(crate) trait Pollable: Send + Sync {
    /// Waits until something may have arrived, or the bell rings, or more can be sent if `sending`,
    /// or `limit` has passed. Returns whether the bell rings.
    fn wait(&self, bell: &Bell, sending: bool, limit: Duration) -> io::Result<bool>;
}

/// One thread's sleep.
pub(crate) struct Parker {
    thread: Thread,
    is_woken: AtomicBool,
    /// Whether the thread waits at a socket, where only the bell wakes it.
    is_polling: AtomicBool,
    bell: OnceLock<Option<Arc<Bell>>>,
}

impl Parker {
    /// For the thread that calls.
    pub(crate) fn new() -> Self {
        Self {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
            is_polling: AtomicBool::new(false),
            bell: OnceLock::new(),
        }
    }

    /// Sleeps until it is woken or `limit` has passed. May return early.
    pub(crate) fn park(&self, limit: Option<Duration>) {
        if !self.is_woken.swap(false, Ordering::SeqCst) {
            match limit {
                Some(limit) => thread::park_timeout(limit),
                None => thread::park(),
            }
            // The caller looks at what it waits for after this, so no wake-up is lost.
            self.is_woken.swap(false, Ordering::SeqCst);
        }
    }

    /// Sleeps until something happens at the socket. Returns `false` when it was woken.
    pub(crate) fn poll(&self, socket: &dyn Pollable, sending: bool, limit: Duration) -> bool {
        let Some(bell) = self.bell() else { return false };
        self.is_polling.store(true, Ordering::SeqCst);
        let rings = match self.is_woken.load(Ordering::SeqCst) {
            false => socket.wait(bell, sending, limit),
            true => Ok(false),
        };
        self.is_polling.store(false, Ordering::SeqCst);
        if matches!(rings, Ok(true)) {
            bell.silence();
        }
        !self.is_woken.swap(false, Ordering::SeqCst)
    }

    /// Whether it can wait at a socket.
    pub(crate) fn can_poll(&self) -> bool {
        self.bell().is_some()
    }

    fn bell(&self) -> Option<&Arc<Bell>> {
        self.bell.get_or_init(Bell::of_this_thread).as_ref()
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if self.is_polling.load(Ordering::SeqCst)
            && let Some(Some(bell)) = self.bell.get()
        {
            bell.ring();
        }
        self.thread.unpark();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    /// A socket at which nothing comes.
    struct Silent(
        UnixStream,
        #[expect(dead_code, reason = "it keeps the other end open")] UnixStream,
    );

    impl Pollable for Silent {
        fn wait(&self, bell: &Bell, sending: bool, limit: Duration) -> io::Result<bool> {
            bell.wait_with(&self.0, sending, limit)
        }
    }

    #[test]
    fn a_thread_that_waits_at_a_socket_is_woken_from_elsewhere() {
        let (one, other) = UnixStream::pair().unwrap();
        let (silent, parker) = (Silent(one, other), Arc::new(Parker::new()));
        let limit = Duration::from_secs(60);
        for _ in 0..3 {
            let start = Instant::now();
            let waking = thread::spawn({
                let parker = Arc::clone(&parker);
                move || {
                    while !parker.is_polling.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    parker.wake();
                }
            });
            assert!(!parker.poll(&silent, false, limit), "it was woken");
            assert!(start.elapsed() < limit / 2, "{:?}", start.elapsed());
            waking.join().unwrap();
        }
        assert!(parker.poll(&silent, false, Duration::ZERO), "nobody wakes it any more");
    }
}
