//! Options for credentials that expire or change.

use std::error::Error;
use std::sync::Arc;

use crate::{Credentials, LocksBuilder};

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
