//! The cryptography that TLS stands on.

use rustls::crypto::{CryptoProvider, ring};

/// Names one for the process, where the application has named none: without one the driver's
/// first TLS connection would panic.
pub(crate) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster, which is as good.
        let _ = ring::default_provider().install_default();
    }
}
