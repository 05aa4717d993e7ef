use std::time::Duration;

use anyhow::Result;
use redlock::{RedLock, RedLockGuard};

use super::{Peer, nodes};

/// `redlock`: a new connection for every command, and pauses that block the thread.
#[derive(Clone, Copy)]
pub(crate) struct Redlock {
    // Its guards borrow the manager; one leaked for each opening lets them move between tasks.
    manager: &'static RedLock,
    ttl: usize,
}

impl Peer for Redlock {
    type Guard = RedLockGuard<'static>;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let manager = Box::leak(Box::new(RedLock::new(nodes(url))));
        Ok(Self { manager, ttl: usize::try_from(ttl.as_millis())? })
    }

    async fn acquire(&self, key: &str) -> Result<RedLockGuard<'static>> {
        Ok(self.manager.acquire_async(key.as_bytes(), self.ttl).await?)
    }

    async fn release(&self, guard: RedLockGuard<'static>) -> Result<()> {
        drop(guard);
        Ok(())
    }
}
