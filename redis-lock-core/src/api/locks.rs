//! The manager of locks.

use std::fmt;
use std::sync::Arc;

use crate::api::builder::Settings;
use crate::domain::demand::{Kind, Options};
use crate::domain::together::Keys;
use crate::engine::Link;
use crate::{Builder, LockError, LockKey, Request};

/// Makes locks on one server. Cheap to clone; all clones share one engine and its connections.
///
/// # How to get one
///
/// | You have | Call |
/// |---|---|
/// | a server that should answer now, or the program should not start | [`Locks::connect(url).await?`](Self::connect) |
/// | a server that may come up later | [`Locks::open(url)?`](Self::open) |
/// | `REDIS_URL` in the environment | [`Locks::from_env()?`](Self::from_env) |
/// | no server: a test, a program of one process | [`Locks::in_memory()`](Self::in_memory) |
/// | a namespace, other defaults, a client of your own | [`Locks::builder()`](Self::builder) |
/// | nothing, somewhere deep in the program | [`Locks::global()?`](Self::global) |
///
/// Keep one for the whole program: [`install`](Self::install) it and annotated functions find it.
/// Tests run in a [`scope`](Self::scope) of their own. Several are needed only for several servers
/// or namespaces.
///
/// # How to lock
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use redis_locks::Locks;
/// let locks = Locks::in_memory();
/// let sum = locks.mutex("sum").blocking_run(|_guard| 1 + 1)?;
/// assert_eq!(sum, 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    link: Arc<Link>,
}

impl Locks {
    pub(crate) fn new(settings: Settings, link: Link) -> Self {
        Self { shared: Arc::new(Shared { settings, link: Arc::new(link) }) }
    }

    /// Everything else: [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects to a server, now: `redis://`, `rediss://`, `redis+unix://`, and the same with `valkey`.
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig) for a URL that can't be read,
    /// [`Backend`](LockError::Backend) when the server can't be reached or refuses.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, LockError> {
        Self::builder().url(url).connect().await
    }

    /// Takes the URL of a server and connects on first use.
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig) for a URL that can't be read.
    pub fn open(url: impl AsRef<str>) -> Result<Self, LockError> {
        Self::builder().url(url).open()
    }

    /// As [`open`](Self::open) with `REDIS_URL`; `REDIS_LOCKS_NAMESPACE` names the namespace.
    ///
    /// # Errors
    /// [`NotConfigured`](LockError::NotConfigured) when `REDIS_URL` is not set, else as `open`.
    pub fn from_env() -> Result<Self, LockError> {
        let url = std::env::var("REDIS_URL").map_err(|_| LockError::NotConfigured)?;
        let mut builder = Self::builder().url(url);
        if let Ok(namespace) = std::env::var("REDIS_LOCKS_NAMESPACE") {
            builder = builder.namespace(namespace);
        }
        builder.open()
    }

    /// No server: locks between the tasks and threads that use clones of this value. For tests, and
    /// for programs of one process.
    #[must_use]
    pub fn in_memory() -> Self {
        Builder::default().in_memory_locks()
    }

    /// A lock that one at a time can hold.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("order:42").blocking_acquire()?;
    /// assert!(locks.mutex("order:42").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn mutex(&self, key: impl Into<LockKey>) -> Request {
        Request::new(self.clone(), Kind::Mutex, Keys::One(key.into()))
    }

    /// A lock that any number can read under, or one write. Readers and writers take their turns in
    /// the order of their coming; readers that come one after the other are let in together.
    ///
    /// Every reader has a lease of its own: one that dies keeps a writer waiting no longer than its
    /// own ttl. A key that is locked for reading or writing can't be a mutex at the same time; who
    /// mixes them gets [`InvalidConfig`](LockError::InvalidConfig).
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
    /// keeps nobody else waiting; after a few rounds in vain it holds those that come first by name
    /// while it waits for the next one, so that it comes to its turn. Whatever the order that
    /// callers name their keys in, they don't wait for each other in a circle.
    ///
    /// On a server in cluster mode keys are taken in one step where they share a hash slot, as
    /// `{acct}:1` and `{acct}:2` do. Others are taken slot by slot, and what was got goes back when
    /// the rest is busy.
    ///
    /// Losing one of the keys is losing all: the guard reports [`Lost`](LockError::Lost) and the
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

    /// Releases what is held, tells those who wait, and refuses new work. A guard that is still out
    /// learns that its lock was removed. To be called before the program ends, so that nobody waits
    /// for leases to run out. A second call returns when the first is done.
    ///
    /// # Cancel safety
    /// The shutdown goes on in the background.
    pub async fn shutdown(&self) {
        self.shared.link.shutdown().await;
    }

    /// [`shutdown`](Self::shutdown) for code without an async runtime.
    pub fn blocking_shutdown(&self) {
        crate::api::blocking::block_on(self.shutdown());
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.shared.link
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }
}

impl Options {
    /// The options of a request that sets none.
    pub(crate) fn of(locks: &Locks) -> Self {
        let settings = locks.settings();
        Self {
            ttl: Some(settings.ttl),
            wait: settings.wait,
            renew: true,
            max_hold: None,
            min_hold: None,
            fenced: false,
            fair: true,
            reentrant: false,
            repair_orphan: None,
            label: None,
            linger: None,
            outage: settings.outage,
            adopts: None,
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        f.debug_struct("Locks")
            .field("server", &settings.server)
            .field("namespace", &settings.namespace)
            .field("ttl", &settings.ttl)
            .field("label", &settings.label)
            .finish_non_exhaustive()
    }
}
