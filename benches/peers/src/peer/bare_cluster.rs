use std::time::Duration;

use anyhow::Result;
use redis::Value;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

use super::Peer;
use super::bare::{Held, POLL, RELEASE, token};

/// `SET NX PX` and a script by hand, over the driver's own client of a cluster.
#[derive(Clone)]
pub(crate) struct BareCluster {
    connection: ClusterConnection,
    ttl: u64,
}

impl Peer for BareCluster {
    type Guard = Held;

    async fn open(url: &str, ttl: Duration) -> Result<Self> {
        let hosts = url.trim_start_matches("redis-cluster://").split(',');
        let client = ClusterClient::new(hosts.map(|host| format!("redis://{host}")))?;
        let connection = client.get_async_connection().await?;
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
