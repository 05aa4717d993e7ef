use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};

use super::Peer;

/// Compare and delete, as every page on the subject has it.
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
         return 0",
    )
});

/// How long to wait before another look at a lock that is held.
const POLL: Duration = Duration::from_millis(1);

/// No library: `SET NX PX` and a script by hand, the least that is a lock at all.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    ttl: u64,
}

pub(crate) struct Held {
    key: String,
    token: String,
}

impl Peer for Bare {
    type Guard = Held;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { connection, ttl: u64::try_from(ttl.as_millis())? })
    }

    async fn acquire(&self, key: &str) -> Result<Held> {
        let token = token();
        let mut connection = self.connection.clone();
        loop {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(&token).arg("NX").arg("PX").arg(self.ttl);
            match set.query_async(&mut connection).await? {
                Value::Okay => return Ok(Held { key: key.to_owned(), token }),
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    async fn release(&self, held: Held) -> Result<()> {
        let mut connection = self.connection.clone();
        let deleted: u32 =
            RELEASE.key(held.key).arg(held.token).invoke_async(&mut connection).await?;
        anyhow::ensure!(deleted == 1, "the lock was not ours any more");
        Ok(())
    }
}

/// Unique and cheap: what is measured is the driver, not a source of random numbers.
fn token() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{:08x}-{:016x}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
