//! How to get a `Locks`.

use crate::{LockError, Locks, LocksBuilder};

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
