//! Which server, or servers, a builder was given.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::server_url::{self, Named, database};
use crate::engine::Arbiter;
use crate::store::memory::Memory;
use crate::store::quorum::{QuorumConnector, Roster};
use crate::store::redis::{
    AddressMap, ClusterDirectory, NodeAccess, RedisConnector, SentinelDirectory, Terms,
};
use crate::store::{Connector, TlsSettings};
use crate::{ConfigError, LockError};

/// As the builder was given it.
#[derive(Clone, Default)]
pub(crate) enum Server {
    #[default]
    Unnamed,
    Url(String),
    Client(Box<redis::Client>),
    Cluster(Vec<String>),
    Sentinel(Vec<String>, String),
    Quorum(Vec<String>),
    Memory,
}

/// Options for servers, apart from their addresses.
#[derive(Clone, Default)]
pub(crate) struct NodeOptions {
    #[cfg(feature = "rustls")]
    pub(crate) certificates: crate::store::tls::Certificates,
    pub(crate) sentinel_auth: Option<(String, String)>,
    pub(crate) address_map: Option<AddressMap>,
}

/// Checked servers.
pub(crate) enum Servers {
    Memory(Memory),
    One(Box<redis::Client>),
    Cluster {
        seeds: Vec<redis::Client>,
        access: Box<NodeAccess>,
    },
    Sentinel {
        name: String,
        seeds: Vec<redis::Client>,
        sentinels: Box<NodeAccess>,
        servers: Box<NodeAccess>,
    },
    Quorum(Vec<redis::Client>),
}

impl Servers {
    /// Checks what the builder was given.
    pub(crate) fn of(server: Server, options: &NodeOptions) -> Result<Self, LockError> {
        let named = match server {
            Server::Unnamed => return Err(LockError::NotConfigured),
            Server::Memory => None,
            Server::Url(url) => Some(server_url::read(&url)?),
            Server::Client(client) => Some(Named::One(*client)),
            Server::Cluster(urls) => Some(Named::Cluster(server_url::read_cluster(&urls)?)),
            Server::Sentinel(urls, name) => {
                Some(Named::Sentinel(server_url::read_sentinels(&urls)?, name))
            }
            Server::Quorum(urls) => Some(Named::Quorum(server_url::read_quorum(&urls)?)),
        };
        options.check(named.as_ref())?;
        #[cfg(feature = "rustls")]
        let named = options.secured(named)?;
        match named {
            None => Ok(Self::Memory(Memory::default())),
            Some(Named::One(client)) => Ok(Self::One(Box::new(client))),
            Some(Named::Cluster(seeds)) => {
                if let Some(db) = seeds.iter().map(database).find(|db| *db != 0) {
                    return Err(ConfigError::ClusterDatabase { db }.into());
                }
                let first = seeds.first().ok_or(ConfigError::NoSeeds)?;
                let access = Box::new(NodeAccess::like(first, options.address_map.clone()));
                Ok(Self::Cluster { seeds, access })
            }
            Some(Named::Sentinel(seeds, name)) => Self::sentinel(&seeds, name, options),
            Some(Named::Quorum(nodes)) if nodes.len() < 3 || nodes.len() % 2 == 0 => {
                Err(ConfigError::QuorumSize { given: nodes.len() }.into())
            }
            Some(Named::Quorum(nodes)) => {
                let name = |node: &redis::Client| node.get_connection_info().addr().to_string();
                let mut names = BTreeSet::new();
                match nodes.iter().map(name).find(|name| !names.insert(name.clone())) {
                    Some(address) => Err(ConfigError::QuorumNodeTwice { address }.into()),
                    None => Ok(Self::Quorum(nodes)),
                }
            }
        }
    }

    /// The credentials and the database of the URLs are those of the servers; the sentinels have
    /// their own, or none.
    fn sentinel(
        seeds: &[redis::Client],
        name: String,
        options: &NodeOptions,
    ) -> Result<Self, LockError> {
        if name.is_empty() {
            return Err(ConfigError::NoPrimaryName.into());
        }
        let first = seeds.first().ok_or(ConfigError::NoSeeds)?;
        let servers = Box::new(NodeAccess::like(first, options.address_map.clone()));
        let own: Result<Vec<_>, _> = seeds.iter().map(|seed| options.as_sentinel(seed)).collect();
        let seeds =
            own.map_err(|error| ConfigError::BadUrl { problem: server_url::problem(&error) })?;
        let first = seeds.first().ok_or(ConfigError::NoSeeds)?;
        let sentinels = Box::new(NodeAccess::like(first, options.address_map.clone()));
        Ok(Self::Sentinel { name, seeds, sentinels, servers })
    }

    /// One of the addresses that were named, with what else was said of it.
    #[cfg(feature = "rustls")]
    fn named(&self) -> Option<&redis::Client> {
        match self {
            Self::Memory(_) => None,
            Self::One(client) => Some(client),
            Self::Cluster { seeds, .. } | Self::Sentinel { seeds, .. } => seeds.first(),
            Self::Quorum(nodes) => nodes.iter().find(|node| crate::store::tls::is_used_by(node)),
        }
    }

    /// Where they are, without the credentials.
    pub(crate) fn describe(&self) -> String {
        let addresses = |clients: &[redis::Client]| {
            let each = clients.iter().map(|client| client.get_connection_info().addr().to_string());
            each.collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Memory(_) => "memory of this process".into(),
            Self::One(client) => {
                format!("{}/{}", client.get_connection_info().addr(), database(client))
            }
            Self::Cluster { seeds, .. } => format!("cluster of {}", addresses(seeds)),
            Self::Sentinel { name, seeds, .. } => {
                format!("{name}, as named by the sentinels {}", addresses(seeds))
            }
            Self::Quorum(nodes) => format!("quorum of {}", addresses(nodes)),
        }
    }

    /// Creates the arbiter for one manager.
    pub(crate) fn arbiter(
        &self,
        manager: &Arc<str>,
        terms: &dyn Fn(&str) -> Terms,
        rejoin: Duration,
    ) -> Arbiter {
        match self {
            Self::Memory(memory) => Arbiter::One(Arc::new(memory.connector(manager))),
            Self::One(client) => {
                Arbiter::One(Arc::new(RedisConnector::new((**client).clone(), &terms(manager))))
            }
            Self::Cluster { seeds, access } => {
                let directory =
                    ClusterDirectory::new(seeds.clone(), (**access).clone(), terms(manager));
                Arbiter::Several(Arc::new(directory))
            }
            Self::Sentinel { name, seeds, sentinels, servers } => {
                let (sentinels, servers) = ((**sentinels).clone(), (**servers).clone());
                let terms = terms(manager);
                let seeds = seeds.clone();
                let directory =
                    SentinelDirectory::new(name.clone(), seeds, sentinels, servers, terms);
                Arbiter::Several(Arc::new(directory))
            }
            Self::Quorum(nodes) => Arbiter::One(Arc::new(quorum(nodes, &terms(manager), rejoin))),
        }
    }
}

/// The nodes of a quorum, each with a connection of its own.
fn quorum(nodes: &[redis::Client], terms: &Terms, rejoin: Duration) -> QuorumConnector {
    let name = |node: &redis::Client| node.get_connection_info().addr().to_string().into();
    let names = nodes.iter().map(name).collect();
    let roster = Roster::new(names, rejoin, terms.beside_locks("fleet"));
    let each = nodes.iter().zip(roster.seats_of()).map(|(node, seat)| {
        Arc::new(RedisConnector::of_quorum(node.clone(), seat, terms)) as Arc<dyn Connector>
    });
    QuorumConnector::new(each.collect(), roster, terms.time_limit())
}

impl NodeOptions {
    /// Options for several nodes make no sense for one server.
    fn check(&self, named: Option<&Named>) -> Result<(), ConfigError> {
        let is_sentinel = matches!(named, Some(Named::Sentinel(..)));
        let is_one = matches!(named, None | Some(Named::One(_) | Named::Quorum(_)));
        if self.sentinel_auth.is_some() && !is_sentinel {
            return Err(ConfigError::SentinelAuthAlone);
        }
        if self.address_map.is_some() && is_one {
            return Err(ConfigError::AddressMapAlone);
        }
        Ok(())
    }

    /// The same servers, with the certificates that were given.
    #[cfg(feature = "rustls")]
    fn secured(&self, named: Option<Named>) -> Result<Option<Named>, ConfigError> {
        if named.is_some() {
            crate::store::tls::provide();
        }
        if self.certificates.is_empty() {
            return Ok(named);
        }
        let add = |client: redis::Client| match crate::store::tls::is_used_by(&client) {
            true => self
                .certificates
                .added_to(&client)
                .map_err(|error| ConfigError::BadCertificate { problem: error.to_string() }),
            false => Err(ConfigError::CertificatesAlone),
        };
        Ok(Some(match named {
            None => return Err(ConfigError::CertificatesAlone),
            Some(Named::One(client)) => Named::One(add(client)?),
            Some(Named::Cluster(nodes)) => {
                Named::Cluster(nodes.into_iter().map(add).collect::<Result<_, _>>()?)
            }
            Some(Named::Sentinel(sentinels, name)) => {
                Named::Sentinel(sentinels.into_iter().map(add).collect::<Result<_, _>>()?, name)
            }
            Some(Named::Quorum(nodes)) => {
                Named::Quorum(nodes.into_iter().map(add).collect::<Result<_, _>>()?)
            }
        }))
    }

    /// How to speak TLS with the servers, where that is for us to do.
    #[cfg(feature = "rustls")]
    pub(crate) fn tls(&self, servers: &Servers) -> Option<TlsSettings> {
        self.certificates.settings(servers.named()?)
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
