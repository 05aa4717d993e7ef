use std::time::Duration;

use anyhow::Result;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

use super::Peer;
use super::bare::{self, Held};

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
        bare::acquire(self.connection.clone(), key, self.ttl).await
    }

    async fn release(&self, held: Held) -> Result<()> {
        bare::release(self.connection.clone(), held).await
    }
}
