//! The cryptography provider of TLS, and the certificates that it is given.

use std::fmt;
use std::sync::Arc;

use redis::{ClientTlsConfig, ConnectionAddr, RedisResult, TlsCertificates};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::load_native_certs;

use super::TlsSettings;

/// Installs a provider for the process, unless the application has installed one: without one the
/// driver's first TLS connection would panic.
pub(crate) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

/// The certificates that the user gave, in addition to those of the platform.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// Who has signed those of the servers, as PEM.
    pub(crate) authority: Option<Vec<u8>>,
    /// Our own and its key, as PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret.
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
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

    /// How to speak TLS to these servers on our connections. `None` if TLS is not used, or if only
    /// the driver knows how: the user may have given a client with certificates.
    ///
    /// Reads the certificates of the platform, which takes many milliseconds. So it is called once,
    /// by the builder, and not on the engine's thread when it connects.
    pub(crate) fn settings(&self, client: &redis::Client) -> Option<TlsSettings> {
        match client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { insecure: false, tls_params, .. }
                if tls_params.is_none() || !self.is_empty() =>
            {
                self.config().map(Arc::new)
            }
            _ => None,
        }
    }

    /// `None` when the certificates can't be used, or no authority is trusted: the driver says why
    /// when it connects.
    fn config(&self) -> Option<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.trusted()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(key);
                builder.with_client_auth_cert(chain.ok()?, key.ok()?).ok()?
            }
        };
        // Sessions are remembered under a mutex, which may stay locked for ever in a forked child.
        config.resumption = Resumption::disabled();
        Some(config)
    }

    fn trusted(&self) -> Option<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Some(authority) => {
                for certificate in CertificateDer::pem_slice_iter(authority) {
                    roots.add(certificate.ok()?).ok()?;
                }
            }
            None => {
                let found = load_native_certs();
                if !found.errors.is_empty() {
                    return None;
                }
                found.certs.into_iter().try_for_each(|known| roots.add(known)).ok()?;
            }
        }
        Some(roots).filter(|roots| !roots.is_empty())
    }
}

/// Whether TLS leads to this server.
pub(crate) fn is_used_by(client: &redis::Client) -> bool {
    matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
}
