//! How to connect to the nodes of one arbiter.

use redis::{ConnectionAddr, ConnectionInfo, RedisError};

use crate::store::redis::address::{Address, AddressMap};

/// The credentials and the TLS of the seeds, which all nodes have in common.
#[derive(Clone)]
pub(crate) struct NodeAccess {
    model: ConnectionInfo,
    map: Option<AddressMap>,
}

impl NodeAccess {
    /// Uses the settings of `model` for every address.
    pub(crate) fn like(model: &redis::Client, map: Option<AddressMap>) -> Self {
        Self { model: model.get_connection_info().clone(), map }
    }

    /// A client of the node that announces this address. It calls the address map, which is the
    /// user's code, so no lock may be held.
    pub(in crate::store::redis) fn client(
        &self,
        announced: &Address,
    ) -> Result<redis::Client, RedisError> {
        let Address { host, port } = announced;
        let mapped = self.map.as_ref().map(|map| map(host, *port));
        let (host, port) = mapped.unwrap_or_else(|| (host.clone(), *port));
        let addr = match self.model.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        redis::Client::open(self.model.clone().set_addr(addr))
    }
}

/// The address that a client connects to; `None` for a unix socket.
pub(super) fn address_of(client: &redis::Client) -> Option<Address> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Address::new(host.as_str(), *port))
        }
        _ => None,
    }
}
