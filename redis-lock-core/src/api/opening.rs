//! How to get a `Locks`, with which credentials, and its method for each kind of lock.

use std::error::Error;
use std::sync::Arc;

use crate::domain::key::Keys;
use crate::domain::kind::Kind;
use crate::{Credentials, LockError, LockKey, LockRequest, Locks, LocksBuilder};

impl Locks {
    /// Sets up everything: [`LocksBuilder`].
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().url("redis://localhost").namespace("shop");
    /// ```
    pub fn builder() -> LocksBuilder {
        LocksBuilder::default()
    }

    /// Connects to a server now: `redis://`, `rediss://`, `redis+unix://`, and the same with `valkey`.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::connect("redis://localhost").await?;
    /// let guard = locks.mutex("report").acquire().await?;
    /// # Ok(()) }
    /// ```
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

    /// Takes the URL of a server, and connects on first use.
    ///
    /// ```
    /// let locks = redis_locks::Locks::open("redis://localhost")?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig) for a URL that can't be read.
    pub fn open(url: impl AsRef<str>) -> Result<Self, LockError> {
        Self::builder().url(url).open()
    }

    /// As [`open`](Self::open), with the URL from `REDIS_URL` and the namespace from `REDIS_LOCKS_NAMESPACE`.
    ///
    /// ```no_run
    /// redis_locks::Locks::from_env()?.install()?; // for annotated functions
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`NotConfigured`](LockError::NotConfigured) when `REDIS_URL` is not set or empty, else as `open`.
    pub fn from_env() -> Result<Self, LockError> {
        let url = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
        let url = url.ok_or(LockError::NotConfigured)?;
        let mut builder = Self::builder().url(url);
        if let Ok(namespace) = std::env::var("REDIS_LOCKS_NAMESPACE") {
            builder = builder.namespace(namespace);
        }
        builder.open()
    }

    /// Uses no server: the tasks and threads that use clones of this value lock each other out. For tests, and for
    /// programs of one process.
    ///
    /// ```
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        LocksBuilder::default().in_memory_locks()
    }

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

impl LocksBuilder {
    /// Credentials that expire or change, instead of those in the URL.
    ///
    /// `provider` is called before each connection, halfway to [`expires_at`](crate::Credentials::expires_at), and
    /// when a server refuses its credentials. All connections share one call at a time, and there is at most one call
    /// a second. Open connections authenticate again, so no lock is lost and no message is missed. All nodes of a
    /// cluster or a quorum use the same credentials.
    ///
    /// A provider that fails, panics or takes more than ten seconds is called again. Until it answers, connections
    /// use its last credentials as long as the server accepts them. A warning each minute,
    /// [`ping`](crate::Locks::ping) and [`server_info`](crate::Locks::server_info) report this. The provider runs on
    /// a separate thread, in a Tokio runtime. Its credentials are never shown, but the text of its error is, so keep
    /// secrets out of that.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// use redis_locks::{Credentials, Locks};
    /// // A secret that is mounted as a file, which may change at any time.
    /// let provider = || async {
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok(Credentials::new("app", password.trim_end()))
    /// };
    /// let locks = Locks::builder().url("rediss://localhost").credentials(provider).open()?;
    /// # Ok(()) }
    /// ```
    pub fn credentials<A>(mut self, provider: impl Fn() -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = Result<Credentials, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.nodes.credentials = Some(Arc::new(move || Box::pin(provider())));
        self
    }

    /// The same for the sentinels, in place of [`sentinel_auth`](Self::sentinel_auth).
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// use redis_locks::{Credentials, Locks};
    /// let provider = || async {
    ///     let password = std::fs::read_to_string("/run/secrets/sentinel")?;
    ///     Ok(Credentials::new("watcher", password.trim_end()))
    /// };
    /// let sentinels = ["redis://s1:26379", "redis://s2:26379"];
    /// let builder = Locks::builder().sentinel(sentinels, "mymaster");
    /// let locks = builder.sentinel_credentials(provider).open()?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel_credentials<A>(
        mut self,
        provider: impl Fn() -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Credentials, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.nodes.sentinel_credentials = Some(Arc::new(move || Box::pin(provider())));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_urls_and_unknown_schemes_are_refused_before_anything_is_sent() {
        for url in
            ["", "localhost", "http://localhost", "redis://", "redis://host:port", "redis://h/x"]
        {
            let error = Locks::open(url).unwrap_err();
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{url}: {error}");
        }
        for url in ["redis://h", "valkey://h:1/2", "redis+unix:///tmp/s", "redis://u:p@h:1/3"] {
            assert!(Locks::open(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn k6_debug_names_server_database_and_namespace_and_no_password() {
        let locks = Locks::builder().url("redis://u:secret@h:1/3").namespace("app").open().unwrap();
        let shown = format!("{locks:?}");
        assert!(shown.contains("h:1/3") && shown.contains("app"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
