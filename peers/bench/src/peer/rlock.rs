use std::time::Duration;

use anyhow::Result;
use rlock::async_lock::RLockGuard;
use rlock::{AcquireOptions, LeaseState};

use super::Peer;

/// `rlock`: polls every 100 ms.
#[derive(Clone)]
pub(crate) struct RLock {
    locks: rlock::async_lock::RLock,
    options: AcquireOptions,
}

impl Peer for RLock {
    type Guard = RLockGuard;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let options = AcquireOptions::builder().ttl(ttl).build()?;
        Ok(Self { locks: rlock::async_lock::RLock::new(url).await?, options })
    }

    async fn acquire(&self, key: &str) -> Result<RLockGuard> {
        Ok(self.locks.acquire_mutex_with_options(key, self.options.clone()).await?)
    }

    async fn release(&self, mut guard: RLockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }

    fn is_held(guard: &RLockGuard) -> bool {
        guard.lease_state() == LeaseState::Active
    }
}
