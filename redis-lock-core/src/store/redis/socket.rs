//! Plain sockets, which any thread can use and any runtime can watch.

use std::io::{self, Read, Write};
use std::net;
#[cfg(unix)]
use std::os::unix::net as unix;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::store::{Bell, Pollable, Readiness, Watcher};

/// A socket to the server, and the driver's connection over it, which is authenticated.
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

/// Connects and has the driver authenticate and choose the database. `None` when the server is not
/// reached over a plain socket.
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
                Ok(Box::new(SocketWatch::Tcp(watch)) as Box<dyn Readiness>)
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
                Ok(Box::new(SocketWatch::Unix(watch)) as Box<dyn Readiness>)
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
#[derive(Clone, Debug)]
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

/// The same socket, registered with a runtime.
#[derive(Debug)]
enum SocketWatch {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl SocketWatch {
    fn poll(&self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>> {
        match (self, interest) {
            (Self::Tcp(stream), Interest::WRITABLE) => stream.poll_write_ready(context),
            (Self::Tcp(stream), _) => stream.poll_read_ready(context),
            #[cfg(unix)]
            (Self::Unix(stream), Interest::WRITABLE) => stream.poll_write_ready(context),
            #[cfg(unix)]
            (Self::Unix(stream), _) => stream.poll_read_ready(context),
        }
    }

    /// Clears the readiness. Reads and writes go on until nothing is left, so the readiness is
    /// cleared before them, and what happens meanwhile is reported again.
    fn use_up(&self, interest: Interest) {
        let used = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Self::Tcp(stream) => stream.try_io(interest, used),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_io(interest, used),
        };
    }
}

impl Pollable for Socket {
    #[cfg(unix)]
    fn wait(&self, bell: &Bell, sending: bool, limit: Duration) -> io::Result<bool> {
        match self {
            Self::Tcp(stream) => bell.wait_with(&**stream, sending, limit),
            Self::Unix(stream) => bell.wait_with(&**stream, sending, limit),
        }
    }

    #[cfg(not(unix))]
    fn wait(&self, bell: &Bell, _: bool, _: Duration) -> io::Result<bool> {
        match *bell {}
    }
}

impl Readiness for SocketWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        let interests = [Some(Interest::READABLE), sending.then_some(Interest::WRITABLE)];
        let mut ready = Poll::Pending;
        for interest in interests.into_iter().flatten() {
            if let Poll::Ready(outcome) = self.poll(context, interest) {
                outcome?;
                self.use_up(interest);
                ready = Poll::Ready(Ok(()));
            }
        }
        ready
    }
}
