//! TLS over a socket of our own.
//!
//! Whoever has the wire encrypts and decrypts, with no task between caller and socket.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use redis::RedisError;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::socket::{Received, Socket};
use crate::store::outbound::Sink;

/// A session of TLS, and its socket.
pub(super) struct TlsSession {
    socket: Socket,
    connection: ClientConnection,
}

impl TlsSession {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.connection.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 {
            // The session holds as much as it may until the socket takes more.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Counted::of(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.connection.wants_write()
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        let count = self.decrypted(into)?;
        if count > 0 {
            return Ok(Received { count, more: true });
        }
        let mut socket = Counted::of(&self.socket);
        if self.connection.read_tls(&mut socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_drained = socket.has_less;
        let is_closed = match self.connection.process_new_packets() {
            Ok(state) => state.peer_has_closed(),
            Err(error) => {
                // The session has an alert for the server. The connection is over, sent or not.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        // Some messages of the session itself want an answer.
        self.flush()?;
        let count = self.decrypted(into)?;
        // Whoever has closed the session need not close the socket, which would say nothing more then.
        Ok(Received { count, more: count == into.len() || !is_drained || is_closed })
    }

    /// Takes what has been decrypted.
    fn decrypted(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.connection.reader().read(into) {
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
        config: &Arc<ClientConfig>,
    ) -> Result<Self, RedisError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        Ok(Self(Arc::new(Mutex::new(stream))))
    }

    /// The session and its socket. The driver must have ended.
    pub(super) fn into_session(self) -> io::Result<TlsSession> {
        let stream = Arc::into_inner(self.0)
            .ok_or_else(|| io::Error::other("the driver still uses the connection"))?
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (socket, connection) = stream.into_inner();
        Ok(TlsSession { socket: Socket::Tcp(Arc::new(socket.into_std()?)), connection })
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection};
    use testbed::Certificates;

    use super::*;
    use crate::store::tls;

    /// The server's end, which reads and writes when the test says so.
    struct Peer {
        stream: UnixStream,
        connection: ServerConnection,
    }

    impl Peer {
        /// Reads until nothing has arrived for a moment; returns how many bytes were meant for it.
        fn read_all(&mut self) -> usize {
            let (mut total, mut buffer) = (0, vec![0; 1 << 16]);
            while self.connection.read_tls(&mut self.stream).is_ok_and(|count| count > 0) {
                self.connection.process_new_packets().unwrap();
                while let Ok(count @ 1..) = self.connection.reader().read(&mut buffer) {
                    total += count;
                }
            }
            total
        }

        fn write_all(&mut self, bytes: &[u8]) {
            self.connection.writer().write_all(bytes).unwrap();
            self.send();
        }

        fn send(&mut self) {
            while self.connection.wants_write() {
                self.connection.write_tls(&mut self.stream).unwrap();
            }
        }
    }

    fn server_config(certificates: &Certificates) -> ServerConfig {
        let chain = CertificateDer::pem_file_iter(certificates.server_file()).unwrap();
        let chain = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(certificates.server_key_file()).unwrap();
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap()
    }

    /// Both ends, after their handshake.
    fn linked() -> Option<(TlsSession, Peer)> {
        let certificates = Certificates::new()?;
        tls::provide();
        let authority = Some(std::fs::read(certificates.authority_file()).unwrap());
        let client = redis::Client::open("rediss://127.0.0.1").unwrap();
        let own = tls::Certificates { authority, identity: None }.settings(&client).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(own, name).unwrap();
        let mut session = TlsSession { socket: Socket::Unix(Arc::new(near)), connection };
        let connection = ServerConnection::new(Arc::new(server_config(&certificates))).unwrap();
        let mut peer = Peer { stream: far, connection };
        while session.connection.is_handshaking() || peer.connection.is_handshaking() {
            session.flush().unwrap();
            peer.read_all();
            peer.send();
            // There is nothing for us to read yet.
            let _ = session.read(&mut [0; 16]);
        }
        // What servers send after the handshake.
        while session.read(&mut [0; 16]).is_ok() {}
        Some((session, peer))
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later() {
        let Some((mut session, mut peer)) = linked() else { return };
        let (bytes, mut taken) = (vec![7; 100_000], 0);
        let full = loop {
            match session.write(&bytes) {
                Ok(count) => taken += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(!session.is_flushed(), "the session has what the socket did not take");
        let mut received = 0;
        while !session.is_flushed() {
            received += peer.read_all();
            session.flush().unwrap();
        }
        assert_eq!(received + peer.read_all(), taken);
    }

    #[test]
    fn what_was_decrypted_is_read_without_waiting_for_the_socket_again() {
        let Some((mut session, mut peer)) = linked() else { return };
        peer.write_all(&vec![7; 40_000]);
        let (mut received, mut buffer) = (0, [0; 1_000]);
        loop {
            match session.read(&mut buffer) {
                Ok(Received { count, more }) => {
                    received += count;
                    if !more {
                        break;
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert_eq!(received, 40_000, "whoever reads waits for the socket now");
        assert_eq!(session.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn answers_before_an_end_still_count_and_the_end_is_noticed_with_them() {
        let Some((mut session, mut peer)) = linked() else { return };
        peer.connection.writer().write_all(b"+OK").unwrap();
        peer.connection.send_close_notify();
        peer.send();
        let (mut received, mut buffer) = (0, [0; 64]);
        let end = loop {
            match session.read(&mut buffer) {
                Ok(Received { count, more }) => {
                    received += count;
                    assert!(more, "nothing else will arrive at the socket, which stays open");
                }
                Err(error) => break error.kind(),
            }
        };
        assert_eq!((received, end), (3, io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn keys_that_are_renewed_are_used_in_both_directions() {
        let Some((mut session, mut peer)) = linked() else { return };
        for _ in 0..3 {
            peer.connection.refresh_traffic_keys().unwrap();
            peer.write_all(b"+OK");
            let (mut received, mut buffer) = (0, [0; 64]);
            while received < 3 {
                received += session.read(&mut buffer).map_or(0, |it| it.count);
            }
            assert_eq!(session.write(b"PING").unwrap(), 4);
            assert!(session.is_flushed());
            assert_eq!(peer.read_all(), 4);
        }
    }

    #[test]
    fn an_end_and_nonsense_are_distinguished_from_silence() {
        let Some((mut session, mut peer)) = linked() else { return };
        peer.connection.send_close_notify();
        peer.send();
        let mut read = || loop {
            match session.read(&mut [0; 16]) {
                Ok(Received { count: 0, .. }) => {}
                other => return other.unwrap_err().kind(),
            }
        };
        assert_eq!(read(), io::ErrorKind::UnexpectedEof);

        let Some((mut session, peer)) = linked() else { return };
        (&peer.stream).write_all(&[0; 64]).unwrap();
        assert_eq!(session.read(&mut [0; 16]).unwrap_err().kind(), io::ErrorKind::InvalidData);

        let Some((mut session, peer)) = linked() else { return };
        drop(peer);
        assert_eq!(session.read(&mut [0; 16]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
