use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{IntoConnectionInfo, Script, TlsCertificates, Value};

use super::Peer;

/// Compare and delete, as every page on the subject has it.
pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
         return 0",
    )
});

/// How long to wait before another look at a lock that is held.
pub(super) const POLL: Duration = Duration::from_millis(1);

/// No library: `SET NX PX` and a script by hand, the least that is a lock at all.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    ttl: u64,
}

pub(crate) struct Held {
    pub(super) key: String,
    pub(super) token: String,
}

impl Peer for Bare {
    type Guard = Held;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        Self::connect(url, ttl, TcpSettings::default()).await
    }

    async fn acquire(&self, key: &str) -> Result<Held> {
        acquire(self.connection.clone(), key, self.ttl).await
    }

    async fn release(&self, held: Held) -> Result<()> {
        release(self.connection.clone(), held).await
    }
}

pub(super) async fn acquire(
    mut connection: impl ConnectionLike,
    key: &str,
    ttl: u64,
) -> Result<Held> {
    let token = token();
    loop {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&token).arg("NX").arg("PX").arg(ttl);
        match set.query_async(&mut connection).await? {
            Value::Okay => return Ok(Held { key: key.to_owned(), token }),
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

pub(super) async fn release(mut connection: impl ConnectionLike, held: Held) -> Result<()> {
    let deleted: u32 = RELEASE.key(held.key).arg(held.token).invoke_async(&mut connection).await?;
    anyhow::ensure!(deleted == 1, "the lock was not ours any more");
    Ok(())
}

impl Bare {
    async fn connect(url: &str, ttl: Duration, settings: TcpSettings) -> Result<Self> {
        let address = url.into_connection_info()?.set_tcp_settings(settings);
        Self::by(redis::Client::open(address)?, ttl).await
    }

    async fn by(client: redis::Client, ttl: Duration) -> Result<Self> {
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { connection, ttl: u64::try_from(ttl.as_millis())? })
    }

    /// Its connection, and the lease in milliseconds.
    pub(super) fn into_parts(self) -> (MultiplexedConnection, u64) {
        (self.connection, self.ttl)
    }

    /// Over TLS and with `TCP_NODELAY`, to a server whose certificate this authority has signed.
    pub(crate) async fn over_tls(url: &str, ttl: Duration, authority: Vec<u8>) -> Result<Self> {
        let settings = TcpSettings::default().set_nodelay(true);
        let address = url.into_connection_info()?.set_tcp_settings(settings);
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(authority) };
        Self::by(redis::Client::build_with_tls(address, certificates)?, ttl).await
    }
}

/// The same with `TCP_NODELAY`, which the driver leaves off unless asked. Goals are set against the
/// better of the two.
#[derive(Clone)]
pub(crate) struct BareNoDelay(Bare);

impl Peer for BareNoDelay {
    type Guard = Held;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let settings = TcpSettings::default().set_nodelay(true);
        Ok(Self(Bare::connect(url, ttl, settings).await?))
    }

    async fn acquire(&self, key: &str) -> Result<Held> {
        self.0.acquire(key).await
    }

    async fn release(&self, held: Held) -> Result<()> {
        self.0.release(held).await
    }
}

/// Unique and cheap: what is measured is the driver, not a source of random numbers.
pub(super) fn token() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{:08x}-{:016x}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
