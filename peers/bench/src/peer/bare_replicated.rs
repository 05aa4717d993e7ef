use std::time::Duration;

use anyhow::Result;
use redis::Value;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{IntoConnectionInfo, Pipeline};

use super::Peer;
use super::bare::{Held, POLL, RELEASE, token};

/// `SET NX PX` and a script by hand, each with a `WAIT` for one replica behind it.
#[derive(Clone)]
pub(crate) struct BareReplicated {
    connection: MultiplexedConnection,
    ttl: u64,
}

impl BareReplicated {
    fn wait(pipeline: &mut Pipeline) {
        pipeline.cmd("WAIT").arg(1).arg(400);
    }
}

impl Peer for BareReplicated {
    type Guard = Held;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let settings = TcpSettings::default().set_nodelay(true);
        let address = url.into_connection_info()?.set_tcp_settings(settings);
        let mut connection =
            redis::Client::open(address)?.get_multiplexed_async_connection().await?;
        RELEASE.load_async(&mut connection).await?;
        Ok(Self { connection, ttl: u64::try_from(ttl.as_millis())? })
    }

    async fn acquire(&self, key: &str) -> Result<Held> {
        let token = token();
        let mut connection = self.connection.clone();
        loop {
            let mut both = redis::pipe();
            both.cmd("SET").arg(key).arg(&token).arg("NX").arg("PX").arg(self.ttl);
            Self::wait(&mut both);
            match both.query_async(&mut connection).await? {
                (Value::Okay, got) => {
                    let got: u32 = got;
                    anyhow::ensure!(got >= 1, "no replica has it");
                    return Ok(Held { key: key.to_owned(), token });
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    async fn release(&self, held: Held) -> Result<()> {
        let mut connection = self.connection.clone();
        let mut both = redis::pipe();
        both.cmd("EVALSHA").arg(RELEASE.get_hash()).arg(1).arg(held.key).arg(held.token);
        Self::wait(&mut both);
        let (deleted, _): (u32, u32) = both.query_async(&mut connection).await?;
        anyhow::ensure!(deleted == 1, "the lock was not ours any more");
        Ok(())
    }
}
