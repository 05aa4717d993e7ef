//! What the cases share.

use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

use redis_locks::{LockError, Locks};

pub(crate) type R<T> = Result<T, LockError>;

/// The process-wide locks that annotated functions without `via` use.
pub(crate) fn locks() -> &'static Locks {
    static LOCKS: OnceLock<Locks> = OnceLock::new();
    LOCKS.get_or_init(|| {
        let locks = Locks::in_memory();
        locks.install().unwrap();
        locks
    })
}

/// Whether `key` is held, asked by a thread that holds nothing.
pub(crate) fn is_locked(key: &str) -> bool {
    let request = locks().mutex(key);
    std::thread::spawn(|| request.blocking_try_acquire().unwrap().is_none()).join().unwrap()
}

/// What happened, in order.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Default for Log {
    fn default() -> Self {
        // A logger may call functions that need locks, and may be the first of its process to do
        // so.
        locks();
        Self(Arc::default())
    }
}

impl Log {
    pub(crate) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A value that logs its drop, and whether `key` was locked then.
    pub(crate) fn watch(&self, name: &'static str, key: &'static str) -> Watch {
        Watch { name, key, log: self.clone() }
    }
}

pub(crate) struct Watch {
    name: &'static str,
    key: &'static str,
    log: Log,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let state = if is_locked(self.key) { "locked" } else { "free" };
        self.log.add(format!("{} {state}", self.name));
    }
}

/// Pending once.
pub(crate) fn tick() -> impl Future<Output = ()> + Send {
    let mut first = true;
    std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
}

/// Waits until `key` is free: releases that are not waited for come soon after.
pub(crate) async fn until_free(key: &str) {
    locks().mutex(key).acquire().await.unwrap().release().await.unwrap();
}

pub(crate) fn is_send<T: Send>(value: T) -> T {
    value
}
