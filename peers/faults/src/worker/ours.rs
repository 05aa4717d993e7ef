use std::time::Duration;

use anyhow::Result;
use redis_lock_core::{Guard, LockError, Locks};

use super::{Acquired, Ended, Library, Terms};

/// redis-locks: one server, or three of which a majority decides.
pub(crate) struct Ours(Locks);

/// Of a quorum: how long a node that has started does not vote. It is above every ttl here.
pub(crate) const REJOIN: Duration = Duration::from_millis(1_500);

impl Library for Ours {
    type Guard = Guard;

    async fn open(terms: &Terms) -> Result<Self> {
        let builder = Locks::builder().ttl(terms.ttl).command_timeout(terms.command_timeout);
        let (urls, replicas) = match terms.urls.split_last() {
            Some((last, rest)) if last == "replicated" => (rest, 1),
            _ => (terms.urls.as_slice(), 0),
        };
        let builder = match urls {
            [url] => builder.url(url).replicas(replicas),
            _ => builder.quorum(urls).rejoin(REJOIN),
        };
        Ok(Self(builder.wait(terms.wait).connect().await?))
    }

    async fn acquire(&self, terms: &Terms) -> Acquired<Guard> {
        match self.0.mutex(&terms.key).fenced().acquire().await {
            Ok(guard) => Acquired::Yes(guard),
            Err(LockError::Busy { .. }) => Acquired::Busy,
            Err(error) => Acquired::Failed(error.to_string()),
        }
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }

    fn fence(guard: &Guard) -> Option<u64> {
        guard.fence()
    }

    async fn release(&self, guard: Guard) -> Ended {
        match guard.release().await {
            Ok(()) => Ended::Ok,
            Err(LockError::Lost { .. }) => Ended::Lost,
            Err(_) => Ended::Unknown,
        }
    }
}
