//! TLS over a socket of our own.
//!
//! Whoever has the wire encrypts and decrypts, with no task between caller and socket.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use redis::RedisError;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::link::Read;
use super::socket::Socket;
use crate::store::TlsSettings;

/// A session of TLS, and its socket.
pub(super) struct TlsLink {
    socket: Socket,
    session: ClientConnection,
}

impl TlsLink {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.session.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 {
            // The session holds as much as it may until the socket takes more.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Counted::of(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.session.wants_write()
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Read> {
        let count = self.decrypted(into)?;
        if count > 0 {
            return Ok(Read { count, more: true });
        }
        let mut socket = Counted::of(&self.socket);
        if self.session.read_tls(&mut socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_drained = socket.has_less;
        if let Err(error) = self.session.process_new_packets() {
            // The session has an alert for the server. The connection is over, sent or not.
            let _ = self.flush();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        // Some messages of the session itself want an answer.
        self.flush()?;
        let count = self.decrypted(into)?;
        Ok(Read { count, more: count == into.len() || !is_drained })
    }

    /// Takes what has been decrypted.
    fn decrypted(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.session.reader().read(into) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            read => read,
        }
    }
}

/// A socket that notes whether it had less than was asked for.
struct Counted<'a> {
    socket: &'a Socket,
    has_less: bool,
}

impl<'a> Counted<'a> {
    fn of(socket: &'a Socket) -> Self {
        Self { socket, has_less: false }
    }
}

impl io::Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(into)?;
        self.has_less = count < into.len();
        Ok(count)
    }
}

impl io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that the driver uses until it has authenticated, and that can be taken from it then.
#[derive(Clone)]
pub(super) struct SharedStream(Arc<Mutex<TlsStream<TcpStream>>>);

impl SharedStream {
    /// Shakes hands with the server, which must prove that it is `host`.
    pub(super) async fn connect(
        stream: TcpStream,
        host: &str,
        tls: &TlsSettings,
    ) -> Result<Self, RedisError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
        Ok(Self(Arc::new(Mutex::new(stream))))
    }

    /// The session and its socket. The driver must have ended.
    pub(super) fn into_link(self) -> io::Result<TlsLink> {
        let stream = Arc::into_inner(self.0)
            .ok_or_else(|| io::Error::other("the driver still uses the connection"))?
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (socket, session) = stream.into_inner();
        Ok(TlsLink { socket: Socket::Tcp(Arc::new(socket.into_std()?)), session })
    }

    fn stream(&self) -> MutexGuard<'_, TlsStream<TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_read(context, buffer)
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_shutdown(context)
    }
}
