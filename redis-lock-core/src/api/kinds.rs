//! The kinds of lock that a manager makes requests for.

use crate::domain::kind::Kind;
use crate::domain::together::Keys;
use crate::{LockKey, Locks, Request};

impl Locks {
    /// A lock that one at a time can hold.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("order:42").blocking_acquire()?;
    /// assert!(locks.mutex("order:42").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock")]
    pub fn mutex(&self, key: impl Into<LockKey>) -> Request {
        Request::new(self.clone(), Kind::Mutex, Keys::One(key.into()))
    }

    /// What many look for first: rustc shows no aliases of other crates.
    #[doc(hidden)]
    #[deprecated(note = "a lock that one at a time can hold is `mutex(key)`")]
    pub fn lock(&self, key: impl Into<LockKey>) -> Request {
        self.mutex(key)
    }

    /// A lock that any number can read under, or one write. Readers and writers take their turns in
    /// the order of their coming; readers that come one after the other are let in together.
    ///
    /// Every reader has a lease of its own: one that dies keeps a writer waiting no longer than its
    /// own ttl. A key that is locked for reading or writing can't be a mutex at the same time; who
    /// mixes them gets [`InvalidConfig`](crate::LockError::InvalidConfig).
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let _one = locks.read("catalog").blocking_acquire()?;
    /// let _other = locks.read("catalog").blocking_acquire()?;
    /// assert!(locks.write("catalog").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn read(&self, key: impl Into<LockKey>) -> Request {
        Request::new(self.clone(), Kind::Read, Keys::One(key.into()))
    }

    /// The writer's side of [`read`](Self::read): nobody else reads or writes meanwhile.
    ///
    /// Who reads and wants to write must release first; waiting for oneself would never end. The
    /// other way there is [`Guard::downgrade`](crate::Guard::downgrade).
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let _writer = locks.write("catalog").blocking_acquire()?;
    /// assert!(locks.read("catalog").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn write(&self, key: impl Into<LockKey>) -> Request {
        Request::new(self.clone(), Kind::Write, Keys::One(key.into()))
    }

    /// One of at most `limit` permits. A holder that dies gives its permit back by its lease.
    ///
    /// Everybody should name the same limit. Where they don't, nobody is let in beyond the limit of
    /// anyone who holds a permit, and a warning says so: the smaller counts.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let _one = locks.permit("gpu", 2).blocking_acquire()?;
    /// let _other = locks.permit("gpu", 2).blocking_acquire()?;
    /// assert!(locks.permit("gpu", 2).blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn permit(&self, key: impl Into<LockKey>, limit: u32) -> Request {
        Request::new(self.clone(), Kind::Permit { limit }, Keys::One(key.into()))
    }

    /// The mutexes of all these keys, or none of them: 1 to 128 keys, in any order, duplicates
    /// allowed. Somebody who has the [`mutex`](Self::mutex) of one of them keeps this one waiting.
    ///
    /// The keys are taken in one step on the server. While it waits, it holds none of them, so it
    /// keeps nobody else waiting; after a few rounds without success it holds those that come first by name
    /// while it waits for the next one, so that it comes to its turn. Whatever the order that
    /// callers name their keys in, they don't wait for each other in a circle.
    ///
    /// On a server in cluster mode keys are taken in one step where they share a hash slot, as
    /// `{acct}:1` and `{acct}:2` do. Others are taken slot by slot, and what was got goes back when
    /// the rest is busy.
    ///
    /// Losing one of the keys is losing all: the guard reports [`Lost`](crate::LockError::Lost) and the
    /// others are released.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let both = locks.all(["acct:2", "acct:1"]).blocking_acquire()?;
    /// assert!(locks.mutex("acct:1").blocking_try_acquire()?.is_none());
    /// assert_eq!(both.key(), "acct:1, acct:2");
    /// # Ok(()) }
    /// ```
    pub fn all<K: Into<LockKey>>(&self, keys: impl IntoIterator<Item = K>) -> Request {
        let keys = keys.into_iter().map(Into::into).collect();
        Request::new(self.clone(), Kind::All { ordered: false }, Keys::Several(keys))
    }
}
