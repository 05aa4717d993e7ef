use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Result;
use redis::Script;
use tokio::task::JoinHandle;

use super::Peer;
use super::bare::{Bare, Held};

/// Compare and lengthen, as every page on the subject has it.
static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then \
         return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
    )
});

/// No library: each lock is renewed by itself, at every third of its lease, over the one connection.
#[derive(Clone)]
pub(crate) struct BareRenewing(Bare);

pub(crate) struct RenewedHeld {
    held: Held,
    is_held: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

impl Peer for BareRenewing {
    type Guard = RenewedHeld;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        Ok(Self(Bare::open(url, ttl).await?))
    }

    async fn acquire(&self, key: &str) -> Result<RenewedHeld> {
        let held = self.0.acquire(key).await?;
        let is_held = Arc::new(AtomicBool::new(true));
        let renewing = renew(self.0.clone(), held.key.clone(), held.token.clone(), &is_held);
        Ok(RenewedHeld { held, is_held, renewing })
    }

    async fn release(&self, held: RenewedHeld) -> Result<()> {
        held.renewing.abort();
        self.0.release(held.held).await
    }

    fn is_held(held: &RenewedHeld) -> bool {
        held.is_held.load(Ordering::Relaxed)
    }
}

fn renew(bare: Bare, key: String, token: String, is_held: &Arc<AtomicBool>) -> JoinHandle<()> {
    let is_held = Arc::clone(is_held);
    let (mut connection, ttl) = bare.into_parts();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(ttl / 3)).await;
            let mut renewal = RENEW.key(&key);
            let renewed = renewal.arg(&token).arg(ttl).invoke_async(&mut connection).await;
            if renewed.ok() != Some(1) {
                return is_held.store(false, Ordering::Relaxed);
            }
        }
    })
}
