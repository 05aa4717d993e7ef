//! How to connect to the nodes of one arbiter.

use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, RedisError};

use super::address_mapper::AddressMapper;
use crate::store::redis::address::{Address, AddressMap};

/// The credentials and the TLS of the seeds, which all nodes have in common.
#[derive(Clone)]
pub(crate) struct NodeAccess {
    model: ConnectionInfo,
    map: Option<Arc<AddressMapper>>,
}

impl NodeAccess {
    /// Uses the settings of `model` for every address.
    pub(crate) fn like(model: &redis::Client, map: Option<AddressMap>) -> Self {
        let map = map.map(|map| Arc::new(AddressMapper::new(map)));
        Self { model: model.get_connection_info().clone(), map }
    }

    /// A client of the node that announces this address.
    pub(in crate::store::redis) async fn client(
        &self,
        announced: &Address,
    ) -> Result<redis::Client, RedisError> {
        let Address { host, port } = match &self.map {
            Some(map) => map.reached(announced).await?,
            None => announced.clone(),
        };
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
