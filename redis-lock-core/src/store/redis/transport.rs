//! What the bytes of a connection go over: a socket, alone or under TLS.

use std::io;
use std::sync::Arc;

use super::socket::{Received, Socket};
#[cfg(feature = "rustls")]
use super::tls_session::TlsSession;
use crate::store::outbound::Sink;

/// None of its methods blocks.
pub(super) enum Transport {
    Plain(Socket),
    #[cfg(feature = "rustls")]
    Tls(Box<TlsSession>),
}

impl Transport {
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "rustls")]
            Self::Tls(session) => session.socket(),
        }
    }

    /// The socket where there is nothing between it and the commands.
    pub(super) fn sink(&self) -> Option<Arc<dyn Sink>> {
        match self {
            Self::Plain(socket) => Some(Arc::new(socket.clone())),
            #[cfg(feature = "rustls")]
            Self::Tls(_) => None,
        }
    }

    /// Takes the first of these bytes, and says how many. Those that are taken are sent, or wait
    /// for [`flush`](Self::flush).
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            #[cfg(feature = "rustls")]
            Self::Tls(session) => session.write(bytes),
        }
    }

    /// Sends what can be sent now of the bytes that were taken.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "rustls")]
            Self::Tls(session) => session.flush(),
        }
    }

    /// Whether all bytes that were taken are sent.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            #[cfg(feature = "rustls")]
            Self::Tls(session) => session.is_flushed(),
        }
    }

    /// # Errors
    /// `UnexpectedEof` when the server has closed the connection, and `WouldBlock` when nothing has
    /// arrived.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => match socket.read(into)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                count => Ok(Received { count, more: count == into.len() }),
            },
            #[cfg(feature = "rustls")]
            Self::Tls(session) => session.read(into),
        }
    }
}
