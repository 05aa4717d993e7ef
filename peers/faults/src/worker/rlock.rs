use anyhow::Result;
use rlock::async_lock::RLockGuard;
use rlock::{AcquireError, AcquireOptions, LeaseState};

use super::{Acquired, Ended, Library, Terms};

/// `rlock`: polls every 100 ms, and renews.
pub(crate) struct RLock {
    locks: rlock::async_lock::RLock,
    options: AcquireOptions,
}

impl Library for RLock {
    type Guard = RLockGuard;

    async fn open(terms: &Terms) -> Result<Self> {
        let options =
            AcquireOptions::builder().ttl(terms.ttl).lock_timeout(Some(terms.wait)).build()?;
        Ok(Self { locks: rlock::async_lock::RLock::new(terms.urls[0].as_str()).await?, options })
    }

    async fn acquire(&self, terms: &Terms) -> Acquired<RLockGuard> {
        match self.locks.acquire_mutex_with_options(&terms.key, self.options.clone()).await {
            Ok(guard) => Acquired::Yes(guard),
            Err(AcquireError::LockTimeout) => Acquired::Busy,
            Err(error) => Acquired::Failed(error.to_string()),
        }
    }

    fn is_held(guard: &RLockGuard) -> bool {
        guard.lease_state() == LeaseState::Active
    }

    async fn release(&self, mut guard: RLockGuard) -> Ended {
        let was_held = Self::is_held(&guard);
        match guard.release().await {
            Ok(()) if was_held => Ended::Ok,
            Ok(()) => Ended::Lost,
            Err(_) if was_held => Ended::Unknown,
            Err(_) => Ended::Lost,
        }
    }
}
