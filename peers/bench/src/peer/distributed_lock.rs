use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use distributed_lock_core::prelude::{DistributedLock as _, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

use super::Peer;

/// `distributed-lock-redis`, over the `fred` driver.
#[derive(Clone)]
pub(crate) struct DistributedLock(Arc<RedisLockProvider>);

impl Peer for DistributedLock {
    type Guard = RedisLockHandle;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let provider = RedisLockProvider::builder()
            .url(url)
            .expiry(ttl)
            .min_validity(ttl * 9 / 10)
            .extension_cadence(ttl / 3)
            .build()
            .await?;
        Ok(Self(Arc::new(provider)))
    }

    async fn acquire(&self, key: &str) -> Result<RedisLockHandle> {
        // A lock value has one token for its whole life, so each acquisition needs one of its own.
        Ok(self.0.create_lock(key).acquire(None).await?)
    }

    async fn release(&self, handle: RedisLockHandle) -> Result<()> {
        Ok(handle.release().await?)
    }

    fn is_held(handle: &RedisLockHandle) -> bool {
        !*handle.lost_token().borrow()
    }
}
