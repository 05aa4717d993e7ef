//! Plain sockets, which any thread can use and any runtime can watch.

use std::io::{self, Read, Write};
use std::net;
#[cfg(unix)]
use std::os::unix::net as unix;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::store::{Readiness, Watcher};

/// A socket that never blocks.
#[derive(Clone, Debug)]
pub(super) enum Socket {
    Tcp(Arc<net::TcpStream>),
    #[cfg(unix)]
    Unix(Arc<unix::UnixStream>),
}

impl Socket {
    /// Registers the same socket with the runtime that the watcher is called on.
    pub(super) fn watcher(&self) -> Watcher {
        match self.clone() {
            Self::Tcp(stream) => Arc::new(move || {
                let watch = TcpStream::from_std(stream.try_clone()?)?;
                Ok(Box::new(SocketWatch::Tcp(watch)) as Box<dyn Readiness>)
            }),
            #[cfg(unix)]
            Self::Unix(stream) => Arc::new(move || {
                let watch = UnixStream::from_std(stream.try_clone()?)?;
                Ok(Box::new(SocketWatch::Unix(watch)) as Box<dyn Readiness>)
            }),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&**stream).write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&**stream).write(bytes),
        }
    }

    /// # Errors
    /// `UnexpectedEof` when the server has closed the connection, and `WouldBlock` when nothing has
    /// arrived.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let count = match self {
            Self::Tcp(stream) => (&**stream).read(into)?,
            #[cfg(unix)]
            Self::Unix(stream) => (&**stream).read(into)?,
        };
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
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
