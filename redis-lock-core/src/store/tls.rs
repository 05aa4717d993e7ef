//! The cryptography provider of TLS, and the certificates that it is given.

use redis::{ClientTlsConfig, ConnectionAddr, RedisResult, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

/// Installs a provider for the process, unless the application has installed one: without one the
/// driver's first TLS connection would panic.
pub(crate) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

/// What the user says of certificates, beside what the platform knows.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// Who has signed those of the servers, as PEM.
    pub(crate) authority: Option<Vec<u8>>,
    /// Our own and its key, as PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    pub(crate) fn is_empty(&self) -> bool {
        self.authority.is_none() && self.identity.is_none()
    }

    /// A client that uses them.
    pub(crate) fn added_to(&self, client: &redis::Client) -> RedisResult<redis::Client> {
        let identity = self.identity.clone();
        let client_tls =
            identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let certificates = TlsCertificates { client_tls, root_cert: self.authority.clone() };
        redis::Client::build_with_tls(client.get_connection_info().clone(), certificates)
    }
}

/// Whether TLS leads to this server.
pub(crate) fn is_used_by(client: &redis::Client) -> bool {
    matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
}
