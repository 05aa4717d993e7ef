use std::time::Duration;

use anyhow::Result;
use redis_locks::{Locks, Scripting};

use super::TTL;
use super::port_map::PortMap;

/// Where a manager finds its locks, and how it uses them.
pub(super) struct Opening {
    pub(super) url: String,
    pub(super) scripting: Scripting,
    pub(super) ports: PortMap,
    pub(super) replicas: u32,
    /// Of a quorum.
    pub(super) rejoin: Duration,
}

impl Opening {
    pub(super) fn open(&self) -> Result<Locks> {
        let ports = self.ports.clone();
        let builder = Locks::builder()
            .url(&self.url)
            .ttl(TTL)
            .scripting(self.scripting)
            .replicas(self.replicas)
            .command_timeout(Duration::from_millis(200));
        if is_quorum(&self.url) {
            return Ok(builder.rejoin(self.rejoin).open()?);
        }
        // One server is reached where the URL says.
        if self.url.starts_with("redis://") {
            return Ok(builder.open()?);
        }
        let translated = move |host: &str, port| (host.to_owned(), ports.translate(port));
        Ok(builder.address_map(translated).open()?)
    }
}

pub(super) fn is_quorum(url: &str) -> bool {
    url.starts_with("redis-quorum://")
}
