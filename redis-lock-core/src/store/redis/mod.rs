//! The arbiter on one Redis or Valkey server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use self::cluster::Cluster;
use self::conversation::{Channel, Conversation};
use self::probe::{Found, Rung, probe};
use self::transaction::{Pool, self_test};
use self::wire::RedisWire;
use super::{BoxFuture, Connected, Connector, Hints};
use crate::domain::error::{Fault, FaultClass};
use crate::domain::status::Scripting;

mod cluster;
#[cfg(test)]
mod conformance;
mod conversation;
mod decode;
mod dialect;
#[cfg(test)]
mod direct;
mod driver_wire;
mod encode;
mod fast;
mod groups;
mod listen;
mod probe;
mod scan;
#[cfg(test)]
mod script_tests;
mod scripts;
mod socket;
mod transaction;
mod wire;

/// Knows one server: its address, its credentials, and where it publishes this manager's grants.
#[derive(Clone)]
pub(crate) struct RedisConnector {
    client: redis::Client,
    namespace: Arc<str>,
    channel: Channel,
    /// How long connecting may take.
    patience: Duration,
    cluster: Arc<Cluster>,
    scripting: Scripting,
    /// Whether scripts were used by the connection before.
    had_scripts: Arc<AtomicBool>,
}

impl RedisConnector {
    pub(crate) fn new(
        client: redis::Client,
        namespace: &str,
        manager: &str,
        patience: Duration,
    ) -> Self {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}:") };
        let name = format!("{prefix}~m:{manager}").into();
        Self {
            client: with_nodelay(client),
            namespace: namespace.into(),
            channel: Channel { name, is_heard: Arc::new(AtomicBool::new(false)) },
            patience: patience.max(Duration::from_millis(500)),
            cluster: Arc::default(),
            scripting: Scripting::Auto,
            had_scripts: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Says whether scripts may be used.
    pub(crate) fn scripting(self, scripting: Scripting) -> Self {
        Self { scripting, ..self }
    }

    async fn connected(self) -> Result<Connected, Fault> {
        let info = self.client.get_connection_info();
        match socket::connect(info).await.map_err(decode::unreachable)? {
            Some(mut introduced) => {
                let found = self.probed(&mut introduced.driver).await?;
                let (socket, watcher) = introduced.into_socket().await;
                let conversation = self.conversation(found.clone());
                let wire = Box::new(RedisWire::new(socket, conversation));
                self.on_rung(Connected { wire, watcher: Some(watcher) }, found).await
            }
            None => self.connected_by_driver().await,
        }
    }

    async fn connected_by_driver(self) -> Result<Connected, Fault> {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut driver = connecting.await.map_err(decode::unreachable)?;
        let found = self.probed(&mut driver).await?;
        let (wire, watcher) = driver_wire::wire(driver, self.conversation(found.clone()));
        self.on_rung(Connected { wire: Box::new(wire), watcher: Some(watcher) }, found).await
    }

    /// What the link serves for: all there is, or what needs no transaction.
    async fn on_rung(&self, link: Connected, found: Found) -> Result<Connected, Fault> {
        let has_scripts = found.rung == Rung::Scripts;
        let had_scripts = self.had_scripts.swap(has_scripts, Ordering::Relaxed);
        if had_scripts != has_scripts && self.scripting == Scripting::Auto {
            crate::observe::log::scripting_changed(has_scripts);
        }
        if has_scripts {
            return Ok(link);
        }
        let pool = Pool::new(self.client.clone(), self.patience);
        let test = [&*self.channel.name, ":~probe"].concat();
        self_test(&pool, &test).await?;
        Ok(transaction::wire(link, pool, found, self.channel.clone()))
    }

    async fn probed(&self, driver: &mut MultiplexedConnection) -> Result<Found, Fault> {
        let found =
            probe(driver, &self.namespace, self.scripting).await.map_err(decode::unreachable)?;
        crate::observe::log::connected(&found.version, &found.warnings);
        Ok(found)
    }

    fn conversation(&self, found: Found) -> Conversation {
        Conversation::new(found, Arc::clone(&self.cluster), self.channel.clone())
    }
}

impl Connector for RedisConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>> {
        let (connector, patience) = (self.clone(), self.patience);
        Box::pin(async move {
            let late = || {
                let what = format!("the server can't be used: no connection within {patience:?}");
                Fault::new(FaultClass::Refused, what)
            };
            timeout(patience, connector.connected()).await.unwrap_or_else(|_| Err(late()))
        })
    }

    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault> {
        let (client, channel) = (self.client.clone(), self.channel.clone());
        Box::pin(listen::listen(client, channel, self.patience, hints))
    }
}

/// The client with settings that suit small, urgent commands.
fn with_nodelay(client: redis::Client) -> redis::Client {
    let info = client.get_connection_info().clone();
    let settings = info.tcp_settings().clone().set_nodelay(true);
    // The settings came from a client, so a client can be made of them.
    redis::Client::open(info.set_tcp_settings(settings)).unwrap_or(client)
}
