use std::time::Duration;

use anyhow::Result;
use redis_lock_core::{Guard, Locks};

use super::Peer;

/// redis-locks, with the release awaited.
#[derive(Clone)]
pub(crate) struct Ours(Locks);

impl Ours {
    /// Over TLS, to a server whose certificate this authority has signed.
    pub(crate) async fn over_tls(url: &str, ttl: Duration, authority: Vec<u8>) -> Result<Self> {
        Ok(Self(Locks::builder().url(url).ttl(ttl).tls_authority(authority).connect().await?))
    }
}

impl Peer for Ours {
    type Guard = Guard;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let builder = Locks::builder().url(url).ttl(ttl);
        // The nodes have just started.
        let is_quorum = url.starts_with("redis-quorum://");
        let builder = if is_quorum { builder.rejoin(Duration::ZERO) } else { builder };
        Ok(Self(builder.connect().await?))
    }

    async fn acquire(&self, key: &str) -> Result<Guard> {
        Ok(self.0.mutex(key).acquire().await?)
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        Ok(guard.release().await?)
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }
}

/// redis-locks, where no caller waits for the answer to the release.
#[derive(Clone)]
pub(crate) struct InBackground(Ours);

impl Peer for InBackground {
    type Guard = Guard;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        Ok(Self(Ours::open(url, ttl).await?))
    }

    async fn acquire(&self, key: &str) -> Result<Guard> {
        self.0.acquire(key).await
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        guard.release_in_background();
        Ok(())
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }
}

/// redis-locks, where leases stay for a while after the release.
#[derive(Clone)]
pub(crate) struct Lingering(Ours);

/// For longer than any measurement pauses.
const LINGER: Duration = Duration::from_secs(5);

impl Peer for Lingering {
    type Guard = Guard;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        Ok(Self(Ours(Locks::builder().url(url).ttl(ttl).linger(LINGER).connect().await?)))
    }

    async fn acquire(&self, key: &str) -> Result<Guard> {
        self.0.acquire(key).await
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        self.0.release(guard).await
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }
}

/// redis-locks, where a replica must have each lock.
#[derive(Clone)]
pub(crate) struct Replicated(Ours);

impl Peer for Replicated {
    type Guard = Guard;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        Ok(Self(Ours(Locks::builder().url(url).ttl(ttl).replicas(1).connect().await?)))
    }

    async fn acquire(&self, key: &str) -> Result<Guard> {
        self.0.acquire(key).await
    }

    async fn release(&self, guard: Guard) -> Result<()> {
        self.0.release(guard).await
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }
}
