//! The cryptography provider of TLS.

use rustls::crypto::{CryptoProvider, ring};

/// Installs a provider for the process, unless the application has installed one: without one the
/// driver's first TLS connection would panic.
pub(crate) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
}
