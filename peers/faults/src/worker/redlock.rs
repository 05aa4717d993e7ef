use std::time::{Duration, Instant};

use anyhow::Result;
use redlock::{Lock, RedLock};

use super::{Acquired, Ended, Library, Terms, Timed};

/// `redlock`: a new connection for every command, and pauses that block the thread.
pub(crate) struct Redlock {
    // Its locks borrow the manager; one leaked for the process lets them be kept.
    manager: &'static RedLock,
}

impl Library for Redlock {
    type Guard = Timed<Lock<'static>>;

    async fn open(terms: &Terms) -> Result<Self> {
        let urls = terms.urls.iter().map(String::as_str).collect();
        let mut manager = RedLock::new(urls);
        let pause = 200;
        manager.set_retry(u32::try_from(terms.wait.as_millis())? / (pause / 2), pause);
        Ok(Self { manager: Box::leak(Box::new(manager)) })
    }

    async fn acquire(&self, terms: &Terms) -> Acquired<Self::Guard> {
        let ttl = terms.ttl.as_millis() as usize;
        match self.manager.lock(terms.key.as_bytes(), ttl) {
            Ok(Some(inner)) => {
                let valid = Duration::from_millis(inner.validity_time as u64);
                Acquired::Yes(Timed { inner, valid_until: Instant::now() + valid })
            }
            Ok(None) => Acquired::Busy,
            Err(error) => Acquired::Failed(error.to_string()),
        }
    }

    fn is_held(guard: &Self::Guard) -> bool {
        guard.is_valid()
    }

    async fn release(&self, guard: Self::Guard) -> Ended {
        self.manager.unlock(&guard.inner);
        guard.ended()
    }
}
