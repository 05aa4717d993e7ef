use std::time::Duration;

use anyhow::Result;
use rslock::{LockGuard, LockManager};

use super::{Peer, nodes};

/// `rslock`: polls after a random pause of up to 200 ms.
#[derive(Clone)]
pub(crate) struct Rslock {
    manager: LockManager,
    ttl: Duration,
}

impl Peer for Rslock {
    type Guard = LockGuard;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        Ok(Self { manager: LockManager::new(nodes(url)), ttl })
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.manager.acquire(key, self.ttl).await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}
