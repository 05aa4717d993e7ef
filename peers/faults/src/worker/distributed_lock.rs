use std::time::Duration;

use anyhow::Result;
use distributed_lock_core::error::LockError;
use distributed_lock_core::prelude::{DistributedLock as _, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

use super::{Acquired, Ended, Library, Terms};

/// `distributed-lock-redis`, over the `fred` driver. It renews, and does not wait for a lock that is
/// held: the worker tries again after a pause.
pub(crate) struct DistributedLock(RedisLockProvider);

const PAUSE: Duration = Duration::from_millis(50);

impl Library for DistributedLock {
    type Guard = RedisLockHandle;

    async fn open(terms: &Terms) -> Result<Self> {
        let provider = RedisLockProvider::builder()
            .urls(&terms.urls)
            .expiry(terms.ttl)
            .min_validity(terms.ttl * 9 / 10)
            .extension_cadence(terms.ttl / 3)
            .build()
            .await?;
        Ok(Self(provider))
    }

    async fn acquire(&self, terms: &Terms) -> Acquired<RedisLockHandle> {
        // A lock value has one token for its whole life, so each acquisition needs one of its own.
        match self.0.create_lock(&terms.key).acquire(Some(terms.wait)).await {
            Ok(handle) => Acquired::Yes(handle),
            Err(LockError::Timeout(_)) => {
                tokio::time::sleep(PAUSE).await;
                Acquired::Busy
            }
            Err(error) => Acquired::Failed(error.to_string()),
        }
    }

    fn is_held(handle: &RedisLockHandle) -> bool {
        !*handle.lost_token().borrow()
    }

    async fn release(&self, handle: RedisLockHandle) -> Ended {
        let was_held = Self::is_held(&handle);
        match handle.release().await {
            Ok(()) if was_held => Ended::Ok,
            Err(_) if was_held => Ended::Unknown,
            _ => Ended::Lost,
        }
    }
}
