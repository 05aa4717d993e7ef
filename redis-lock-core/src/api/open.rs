//! The ways to get a manager.

use crate::{Builder, LockError, Locks};

impl Locks {
    /// Sets up everything: [`Builder`].
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

    /// No server: locks between the tasks and threads that use clones of this value. For tests, and
    /// for programs of one process.
    #[must_use]
    pub fn in_memory() -> Self {
        Builder::default().in_memory_locks()
    }
}
