//! Which server, or servers, a builder was given.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::server_url::{Servers, database, problem};
use crate::ConfigError;
use crate::domain::status::Topology;
use crate::engine::Arbiter;
use crate::store::memory::Memory;
use crate::store::quorum::{QuorumConnector, Roster};
use crate::store::redis::login::CredentialSource;
use crate::store::redis::provider::Provider;
use crate::store::redis::{
    AddressMap, ClusterDirectory, NodeAccess, RedisConnector, SentinelDirectory, Terms,
};
#[cfg(feature = "rustls")]
use crate::store::tls;
use crate::store::{Connector, TlsSettings};

/// Options for servers, apart from their addresses.
#[derive(Clone, Default)]
pub(crate) struct NodeOptions {
    #[cfg(feature = "rustls")]
    pub(crate) certificates: tls::Certificates,
    pub(crate) sentinel_auth: Option<(String, String)>,
    pub(crate) credentials: Option<Provider>,
    pub(crate) sentinel_credentials: Option<Provider>,
    pub(crate) address_map: Option<AddressMap>,
}

impl Servers {
    /// Checks what the builder was given.
    pub(crate) fn checked(mut self, options: &NodeOptions) -> Result<Self, ConfigError> {
        options.check(&self)?;
        #[cfg(feature = "rustls")]
        options.secure(&mut self)?;
        match self.topology {
            Topology::Memory | Topology::Single => {}
            Topology::Cluster => {
                if let Some(db) = self.clients.iter().map(database).find(|db| *db != 0) {
                    return Err(ConfigError::ClusterDatabase { db });
                }
            }
            Topology::Sentinel if self.primary.is_empty() => {
                return Err(ConfigError::NoPrimaryName);
            }
            Topology::Sentinel => {
                let own: Result<_, _> =
                    self.clients.iter().map(|seed| options.as_sentinel(seed)).collect();
                let bad = |error| ConfigError::BadUrl { problem: problem(&error) };
                self.sentinels = own.map_err(bad)?;
            }
            Topology::Quorum if self.clients.len() < 3 || self.clients.len().is_multiple_of(2) => {
                return Err(ConfigError::QuorumSize { given: self.clients.len() });
            }
            Topology::Quorum => {
                let mut names = BTreeSet::new();
                let twice = self.clients.iter().map(address).find(|it| !names.insert(it.clone()));
                if let Some(address) = twice {
                    return Err(ConfigError::QuorumNodeTwice { address });
                }
                let mut databases = self.clients.iter().map(database);
                let first = databases.next();
                if databases.any(|database| Some(database) != first) {
                    let problem = "all nodes of a quorum have the same database number".into();
                    return Err(ConfigError::BadUrl { problem });
                }
            }
        }
        Ok(self)
    }

    /// The addresses, without the credentials.
    pub(crate) fn describe(&self) -> String {
        let addresses = self.clients.iter().map(address).collect::<Vec<_>>().join(",");
        match self.topology {
            Topology::Memory => "memory of this process".into(),
            Topology::Single => {
                let database = self.clients.first().map_or(0, database);
                format!("{addresses}/{database}")
            }
            Topology::Cluster => format!("cluster of {addresses}"),
            Topology::Sentinel => {
                format!("{}, as named by the sentinels {addresses}", self.primary)
            }
            Topology::Quorum => format!("quorum of {addresses}"),
        }
    }

    /// Creates the arbiter for one manager. The second terms are those of sentinels.
    pub(crate) fn arbiter(
        &self,
        manager: &Arc<str>,
        options: &NodeOptions,
        [terms, watching]: [Terms; 2],
        rejoin: Duration,
    ) -> Arbiter {
        let Some(first) = self.clients.first() else {
            return Arbiter::One(Arc::new(Memory::default().connector(manager)));
        };
        let access = |model: &redis::Client| NodeAccess::like(model, options.address_map.clone());
        match self.topology {
            Topology::Memory | Topology::Single => {
                Arbiter::One(Arc::new(RedisConnector::new(first.clone(), &terms)))
            }
            Topology::Cluster => {
                let seeds = self.clients.clone();
                Arbiter::Several(Arc::new(ClusterDirectory::new(seeds, access(first), terms)))
            }
            Topology::Sentinel => {
                let seeds = self.sentinels.clone();
                let sentinels = access(seeds.first().unwrap_or(first));
                let name = self.primary.clone();
                let (sentinels, servers) = ((sentinels, watching), (access(first), terms));
                let directory = SentinelDirectory::new(name, seeds, sentinels, servers);
                Arbiter::Several(Arc::new(directory))
            }
            Topology::Quorum => Arbiter::One(Arc::new(quorum(&self.clients, &terms, rejoin))),
        }
    }
}

fn address(client: &redis::Client) -> String {
    client.get_connection_info().addr().to_string()
}

/// The nodes of a quorum, each with a separate connection.
fn quorum(nodes: &[redis::Client], terms: &Terms, rejoin: Duration) -> QuorumConnector {
    let names = nodes.iter().map(|node| address(node).into()).collect();
    let roster = Roster::new(names, rejoin, |what| terms.beside_locks(what));
    let each = nodes.iter().zip(roster.seats_of()).map(|(node, seat)| {
        Arc::new(RedisConnector::of_quorum(node.clone(), seat, terms)) as Arc<dyn Connector>
    });
    QuorumConnector::new(each.collect(), roster, terms.time_limit)
}

impl NodeOptions {
    /// Where the credentials of the servers come from, and those of the sentinels.
    pub(crate) fn sources(&self) -> [Option<Arc<CredentialSource>>; 2] {
        let providers = [&self.credentials, &self.sentinel_credentials];
        providers.map(|provider| provider.clone().map(CredentialSource::new))
    }

    /// Options for several nodes make no sense for one server.
    fn check(&self, servers: &Servers) -> Result<(), ConfigError> {
        let has_map = matches!(servers.topology, Topology::Cluster | Topology::Sentinel);
        if self.sentinel_auth.is_some() && servers.topology != Topology::Sentinel {
            let (option, needs) = ("sentinel_auth", "sentinels");
            let advice = "credentials of a server stand in its URL";
            return Err(ConfigError::Requires { option, needs, advice });
        }
        if self.sentinel_credentials.is_some() && servers.topology != Topology::Sentinel {
            let (option, needs) = ("sentinel_credentials", "sentinels");
            let advice = "those of a server come from `credentials`";
            return Err(ConfigError::Requires { option, needs, advice });
        }
        if self.credentials.is_some() && servers.topology == Topology::Memory {
            let (needs, advice) = ("a server", "locks in memory have none");
            return Err(ConfigError::Requires { option: "credentials", needs, advice });
        }
        if self.address_map.is_some() && !has_map {
            let (option, needs) = ("address_map", "a cluster or sentinels");
            let advice = "name one server by the address where it is reached";
            return Err(ConfigError::Requires { option, needs, advice });
        }
        Ok(())
    }

    /// Gives the servers the certificates.
    #[cfg(feature = "rustls")]
    fn secure(&self, servers: &mut Servers) -> Result<(), ConfigError> {
        if !servers.clients.is_empty() {
            tls::provide();
        }
        if self.certificates.is_empty() {
            return Ok(());
        }
        if servers.clients.is_empty() || !servers.clients.iter().all(tls::is_used_by) {
            let (option, needs) = ("a certificate", "TLS");
            let advice = "name the servers by rediss://, rediss-cluster://, rediss-sentinel:// or \
                          rediss-quorum://";
            return Err(ConfigError::Requires { option, needs, advice });
        }
        for client in &mut servers.clients {
            let secured = self.certificates.added_to(client);
            *client = secured
                .map_err(|error| ConfigError::BadCertificate { problem: error.to_string() })?;
        }
        Ok(())
    }

    /// How to speak TLS with the servers, if that is our part.
    #[cfg(feature = "rustls")]
    pub(crate) fn tls(&self, servers: &Servers) -> Option<TlsSettings> {
        self.certificates.settings(servers.clients.iter().find(|node| tls::is_used_by(node))?)
    }

    #[cfg(not(feature = "rustls"))]
    pub(crate) fn tls(&self, _: &Servers) -> Option<TlsSettings> {
        None
    }

    /// The client of a sentinel that is named by the URL of this one.
    fn as_sentinel(&self, seed: &redis::Client) -> redis::RedisResult<redis::Client> {
        let info = seed.get_connection_info();
        let mut settings =
            redis::RedisConnectionInfo::default().set_protocol(info.redis_settings().protocol());
        if let Some((user, password)) = &self.sentinel_auth {
            if !user.is_empty() {
                settings = settings.set_username(user);
            }
            settings = settings.set_password(password);
        }
        redis::Client::open(info.clone().set_redis_settings(settings))
    }
}
