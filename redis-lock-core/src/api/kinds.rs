//! The kinds of lock, each with the method of `Locks` that asks for it.

use crate::domain::key::Keys;
use crate::domain::kind::Kind;
use crate::{LockKey, LockRequest, Locks};

impl Locks {
    /// A mutex: one holder at a time.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("order:42").blocking_acquire()?;
    /// assert!(locks.mutex("order:42").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock")]
    pub fn mutex(&self, key: impl Into<LockKey>) -> LockRequest {
        LockRequest::new(self.clone(), Kind::Mutex, Keys::One(key.into()))
    }

    /// What many look for first: rustc shows no aliases of other crates.
    #[doc(hidden)]
    #[deprecated(note = "a lock that one at a time can hold is `mutex(key)`")]
    pub fn lock(&self, key: impl Into<LockKey>) -> LockRequest {
        self.mutex(key)
    }

    /// The reader's side of an RwLock: any number of readers, or one writer ([`write`](Self::write)). They are served
    /// first come, first served, and consecutive readers are admitted together.
    ///
    /// Each reader has a separate lease, so a reader that dies blocks a writer for one ttl at most. A key that is
    /// held as a mutex or permit can't be read at the same time: that is
    /// [`InvalidConfig`](crate::LockError::InvalidConfig).
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let _one = locks.read("catalog").blocking_acquire()?;
    /// let _other = locks.read("catalog").blocking_acquire()?;
    /// assert!(locks.write("catalog").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn read(&self, key: impl Into<LockKey>) -> LockRequest {
        LockRequest::new(self.clone(), Kind::Read, Keys::One(key.into()))
    }

    /// The writer's side of [`read`](Self::read): it excludes all readers and other writers.
    ///
    /// There is no upgrade: a reader that wants to write must release first, or it would wait for itself for ever.
    /// [`Guard::downgrade`](crate::Guard::downgrade) turns a writer into a reader.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let _writer = locks.write("catalog").blocking_acquire()?;
    /// assert!(locks.read("catalog").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn write(&self, key: impl Into<LockKey>) -> LockRequest {
        LockRequest::new(self.clone(), Kind::Write, Keys::One(key.into()))
    }

    /// A semaphore: one of at most `limit` permits. When a holder dies, its permit is free again after
    /// its lease.
    ///
    /// All callers should use the same limit. If limits differ, the smallest one of the holders and the newcomer
    /// applies, and a warning reports it.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let _one = locks.permit("gpu", 2).blocking_acquire()?;
    /// let _other = locks.permit("gpu", 2).blocking_acquire()?;
    /// assert!(locks.permit("gpu", 2).blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn permit(&self, key: impl Into<LockKey>, limit: u32) -> LockRequest {
        LockRequest::new(self.clone(), Kind::Permit { limit }, Keys::One(key.into()))
    }

    /// The mutexes of all these keys, or none of them. It never deadlocks, whatever the order of the keys. 1 to 128
    /// keys; duplicates are allowed.
    ///
    /// It waits while another holder has the [`mutex`](Self::mutex) of any of the keys. The server grants them in one
    /// step, so a waiter holds none of them. After a few rounds without success, it keeps the keys that come first by
    /// name while it waits for the next one, so that its turn comes.
    ///
    /// In cluster mode, keys that share a hash slot are taken in one step, as `{acct}:1` and `{acct}:2`
    /// do. Others are taken slot by slot, and given back if one is busy.
    ///
    /// If one key is lost, the whole lock is: the guard reports [`Lost`](crate::LockError::Lost), and the other keys
    /// are released.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let both = locks.all(["acct:2", "acct:1"]).blocking_acquire()?;
    /// assert!(locks.mutex("acct:1").blocking_try_acquire()?.is_none());
    /// assert_eq!(both.key(), "acct:1, acct:2");
    /// # Ok(()) }
    /// ```
    pub fn all<K: Into<LockKey>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        let keys = keys.into_iter().map(Into::into).collect();
        LockRequest::new(self.clone(), Kind::All { ordered: false }, Keys::Several(keys))
    }
}
