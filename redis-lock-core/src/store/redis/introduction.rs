//! Connections on which the driver authenticates, and which are then used without it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisError,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::socket::Socket;
#[cfg(feature = "rustls")]
use super::tls_session::SharedStream;
use super::transport::Transport;
use crate::store::TlsSettings;

/// The driver's connection, which is authenticated, and what it runs over.
pub(super) struct Introduced {
    pub(super) driver: MultiplexedConnection,
    task: JoinHandle<()>,
    carrier: Carrier,
}

enum Carrier {
    Plain(Socket),
    #[cfg(feature = "rustls")]
    Tls(SharedStream),
}

impl Introduced {
    /// What it runs over, for our own use. All that the driver asked must have been answered.
    pub(super) async fn into_transport(self) -> Result<Transport, RedisError> {
        // Its task must have ended before we use the socket, since it would read our replies; and it
        // must not end by itself, since it would shut the socket down.
        self.task.abort();
        let _ = self.task.await;
        drop(self.driver);
        match self.carrier {
            Carrier::Plain(socket) => Ok(Transport::Plain(socket)),
            #[cfg(feature = "rustls")]
            Carrier::Tls(stream) => Ok(Transport::Tls(Box::new(stream.into_session()?))),
        }
    }
}

/// Connects and has the driver authenticate and choose the database. `None` when only the driver
/// knows how to reach the server: over TLS, when the user gave a client with certificates in it.
pub(super) async fn connect(
    info: &ConnectionInfo,
    tls: Option<&TlsSettings>,
) -> Result<Option<Introduced>, RedisError> {
    let settings = info.redis_settings();
    match (info.addr(), tls) {
        (ConnectionAddr::Tcp(host, port), _) => {
            let stream = Arc::new(connected(host, *port).await?.into_std()?);
            let (driver, task) =
                introduce(settings, TcpStream::from_std(stream.try_clone()?)?).await?;
            Ok(Some(Introduced { driver, task, carrier: Carrier::Plain(Socket::Tcp(stream)) }))
        }
        #[cfg(feature = "rustls")]
        (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
            let stream = SharedStream::connect(connected(host, *port).await?, host, tls).await?;
            let (driver, task) = introduce(settings, stream.clone()).await?;
            Ok(Some(Introduced { driver, task, carrier: Carrier::Tls(stream) }))
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), _) => {
            let stream = Arc::new(UnixStream::connect(path).await?.into_std()?);
            let (driver, task) =
                introduce(settings, UnixStream::from_std(stream.try_clone()?)?).await?;
            Ok(Some(Introduced { driver, task, carrier: Carrier::Plain(Socket::Unix(stream)) }))
        }
        _ => Ok(None),
    }
}

async fn connected(host: &str, port: u16) -> Result<TcpStream, RedisError> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn introduce(
    settings: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(MultiplexedConnection, JoinHandle<()>), RedisError> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(settings, stream, config).await?;
    Ok((connection, tokio::spawn(driver)))
}
