use std::time::{Duration, Instant};

use anyhow::Result;
use rslock::{Lock, LockError, LockManager};

use super::{Acquired, Ended, Library, Terms, Timed};

/// `rslock`: polls after a random pause of up to 200 ms.
pub(crate) struct Rslock(LockManager);

impl Library for Rslock {
    type Guard = Timed<Lock>;

    async fn open(terms: &Terms) -> Result<Self> {
        let mut manager = LockManager::new(terms.urls.clone());
        let pause = Duration::from_millis(200);
        let tries = terms.wait.as_millis() / (pause.as_millis() / 2);
        manager.set_retry(u32::try_from(tries)?, pause);
        Ok(Self(manager))
    }

    async fn acquire(&self, terms: &Terms) -> Acquired<Timed<Lock>> {
        match self.0.lock(terms.key.as_str(), terms.ttl).await {
            Ok(inner) => {
                let valid = Duration::from_millis(inner.validity_time as u64);
                Acquired::Yes(Timed { inner, valid_until: Instant::now() + valid })
            }
            Err(LockError::Unavailable) => Acquired::Busy,
            Err(error) => Acquired::Failed(error.to_string()),
        }
    }

    fn is_held(guard: &Timed<Lock>) -> bool {
        guard.is_valid()
    }

    async fn release(&self, guard: Timed<Lock>) -> Ended {
        self.0.unlock(&guard.inner).await;
        guard.ended()
    }
}
