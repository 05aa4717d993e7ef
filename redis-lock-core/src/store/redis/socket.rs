//! Plain sockets, which any thread can use and any runtime can watch.

use std::io::{self, Read, Write};
use std::net;
use std::sync::Arc;

#[cfg(unix)]
use std::os::unix::net as unix;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::store::{BoxFuture, Readiness, Watcher};

/// A socket to the server, and the driver's connection over the same, which has introduced itself.
pub(super) struct Introduced {
    pub(super) driver: MultiplexedConnection,
    task: JoinHandle<()>,
    socket: Socket,
    watcher: Watcher,
}

impl Introduced {
    /// The socket for our own use. All that the driver asked must have been answered.
    pub(super) async fn into_socket(self) -> (Socket, Watcher) {
        // Its task must have ended before we use the socket, since it would read our replies; and it
        // must not end by itself, since it would shut the socket down.
        self.task.abort();
        let _ = self.task.await;
        drop(self.driver);
        (self.socket, self.watcher)
    }
}

/// Connects and has the driver authenticate and choose the database. None where a plain socket does
/// not lead to the server.
pub(super) async fn connect(
    info: &redis::ConnectionInfo,
) -> Result<Option<Introduced>, RedisError> {
    let settings = info.redis_settings();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let stream = Arc::new(stream.into_std()?);
            let (driver, task) =
                introduce(settings, TcpStream::from_std(stream.try_clone()?)?).await?;
            let watched = Arc::clone(&stream);
            let watcher: Watcher = Arc::new(move || {
                let watch = TcpStream::from_std(watched.try_clone()?)?;
                Ok(Box::new(Watch::Tcp(watch)) as Box<dyn Readiness>)
            });
            Ok(Some(Introduced { driver, task, socket: Socket::Tcp(stream), watcher }))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = Arc::new(UnixStream::connect(path).await?.into_std()?);
            let (driver, task) =
                introduce(settings, UnixStream::from_std(stream.try_clone()?)?).await?;
            let watched = Arc::clone(&stream);
            let watcher: Watcher = Arc::new(move || {
                let watch = UnixStream::from_std(watched.try_clone()?)?;
                Ok(Box::new(Watch::Unix(watch)) as Box<dyn Readiness>)
            });
            Ok(Some(Introduced { driver, task, socket: Socket::Unix(stream), watcher }))
        }
        _ => Ok(None),
    }
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

/// A socket that never blocks.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(Arc<net::TcpStream>),
    #[cfg(unix)]
    Unix(Arc<unix::UnixStream>),
}

impl Socket {
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&**stream).write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&**stream).write(bytes),
        }
    }

    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&**stream).read(into),
            #[cfg(unix)]
            Self::Unix(stream) => (&**stream).read(into),
        }
    }
}

/// The same socket as a runtime sees it.
#[derive(Debug)]
enum Watch {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Watch {
    async fn ready(&self, interest: Interest) -> io::Result<()> {
        // Whoever reads or writes does so until nothing is left. So the readiness counts as used
        // up before; what happens meanwhile is reported again.
        let used = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        match self {
            Self::Tcp(stream) => {
                let ready = stream.ready(interest).await?;
                let _ = stream.try_io(interest_of(ready), used);
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                let ready = stream.ready(interest).await?;
                let _ = stream.try_io(interest_of(ready), used);
            }
        }
        Ok(())
    }
}

/// What a readiness is about.
fn interest_of(ready: tokio::io::Ready) -> Interest {
    if ready.is_writable() && ready.is_readable() {
        Interest::READABLE | Interest::WRITABLE
    } else if ready.is_writable() {
        Interest::WRITABLE
    } else {
        Interest::READABLE
    }
}

impl Readiness for Watch {
    fn ready(&self, sending: bool) -> BoxFuture<'_, io::Result<()>> {
        let readable = Interest::READABLE;
        Box::pin(self.ready(if sending { readable | Interest::WRITABLE } else { readable }))
    }
}
