//! A connection without a task between its users and its socket.
//!
//! The driver connects and introduces us; then whoever has something to say writes it by itself.
//! What goes over a wire is short: one line answers each command, so reading is finding its end.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net;
use std::pin::Pin;
use std::sync::Arc;

#[cfg(unix)]
use std::os::unix::net as unix;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisConnectionInfo, Value};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::connection::Connection;
use super::encode::{self, Context};
use super::{Plain, decode, is_demoted};
use crate::error::{Fault, FaultClass};
use crate::store::{Command, NewWire, Readiness, Reply, Verb, Wire};

/// Room for what arrives at once; no line that answers what we send is longer.
const ROOM: usize = 16 * 1024;

/// Connects as the standing connection did, which knows the server already.
pub(super) async fn connect(client: Client, standing: Connection) -> Option<NewWire> {
    let known = standing.up().await.ok()?;
    let (socket, watch) = connected(client.get_connection_info()).await.ok().flatten()?;
    // What goes over a wire never queues, so nobody has to be told.
    let context = Context { delete: known.found.delete, channel: "-".into() };
    let input = Input { buffer: vec![0; ROOM].into(), start: 0, end: 0 };
    let wire = RedisWire { socket, context, out: Vec::new(), sent: 0, input, spent: false };
    Some((Box::new(wire), Arc::new(watch)))
}

/// One socket twice, ready for commands: to use, and to be told by. None where a plain socket does
/// not lead to the server.
async fn connected(info: &redis::ConnectionInfo) -> io::Result<Option<(Socket, Watch)>> {
    let settings = info.redis_settings();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let stream = stream.into_std()?;
            introduce(settings, TcpStream::from_std(stream.try_clone()?)?).await?;
            let watch = TcpStream::from_std(stream.try_clone()?)?;
            Ok(Some((Socket::Tcp(stream), Watch::Tcp(watch))))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = UnixStream::connect(path).await?.into_std()?;
            introduce(settings, UnixStream::from_std(stream.try_clone()?)?).await?;
            let watch = UnixStream::from_std(stream.try_clone()?)?;
            Ok(Some((Socket::Unix(stream), Watch::Unix(watch))))
        }
        _ => Ok(None),
    }
}

/// Has the driver authenticate and choose the database.
async fn introduce(
    settings: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let made = MultiplexedConnection::new_with_config(settings, stream, config).await;
    // All that it asked has been answered; the socket is ours from here.
    made.map(drop).map_err(io::Error::other)
}

/// A socket that never blocks.
#[derive(Debug)]
enum Socket {
    Tcp(net::TcpStream),
    #[cfg(unix)]
    Unix(unix::UnixStream),
}

impl Socket {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(into),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).read(into),
        }
    }
}

/// The same socket as its runtime sees it.
#[derive(Debug)]
enum Watch {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Watch {
    async fn ready(&self, interest: Interest) -> io::Result<()> {
        // Whoever reads or writes does so until nothing is left. So the readiness counts as used
        // up before; what happens meanwhile is told again.
        let used = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        match self {
            Self::Tcp(stream) => {
                let ready = stream.ready(interest).await?;
                let _ = stream.try_io(told(ready), used);
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                let ready = stream.ready(interest).await?;
                let _ = stream.try_io(told(ready), used);
            }
        }
        Ok(())
    }
}

/// What a readiness was told of.
fn told(ready: tokio::io::Ready) -> Interest {
    if ready.is_writable() && ready.is_readable() {
        Interest::READABLE | Interest::WRITABLE
    } else if ready.is_writable() {
        Interest::WRITABLE
    } else {
        Interest::READABLE
    }
}

impl Readiness for Watch {
    fn ready(&self, sending: bool) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        let readable = Interest::READABLE;
        Box::pin(self.ready(if sending { readable | Interest::WRITABLE } else { readable }))
    }
}

/// One connection, for whoever has it locked.
struct RedisWire {
    socket: Socket,
    context: Context,
    out: Vec<u8>,
    /// How much of `out` has been sent.
    sent: usize,
    input: Input,
    spent: bool,
}

impl Wire for RedisWire {
    fn push(&mut self, command: &Command) -> bool {
        let cmd = encode::brief(command, &self.context);
        if let Some(cmd) = &cmd {
            cmd.write_packed_command(&mut self.out);
        }
        cmd.is_some()
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    fn fill(&mut self) -> io::Result<bool> {
        let Some(room) = self.input.room() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line has no end"));
        };
        match self.socket.read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                let full = count == room.len();
                self.input.end += count;
                Ok(full)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn is_spent(&self) -> bool {
        self.spent
    }

    fn pull(&mut self, verb: &Verb) -> Option<Result<Reply, Fault>> {
        let value = value(self.input.line()?);
        // Whoever is the primary now is found by connecting again.
        self.spent |= value.as_ref().is_ok_and(is_demoted);
        Some(match value {
            Ok(value) if decode::is_forgotten(&value) => Ok(Reply::Unclear { waited_for: false }),
            Ok(value) => decode::plain(verb, value).map(|plain| match plain {
                Plain::Answer(answer) => Reply::Answer(answer),
                Plain::AskScript => Reply::Unclear { waited_for: true },
            }),
            Err(fault) => Err(fault),
        })
    }
}

/// What a line says. Any that is not a whole answer means that we have lost our place.
fn value(line: &[u8]) -> Result<Value, Fault> {
    match line {
        b"+OK\r\n" => Ok(Value::Okay),
        b"$-1\r\n" | b"_\r\n" => Ok(Value::Nil),
        b":1\r\n" => Ok(Value::Int(1)),
        b":0\r\n" => Ok(Value::Int(0)),
        [b'+' | b'-' | b':', ..] => redis::parse_redis_value(line).map_err(decode::broken),
        _ => Err(Fault::new(FaultClass::Unknown, "the server said something unexpected")),
    }
}

/// What has arrived and was not read.
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// Where the next bytes go; none when it is full.
    fn room(&mut self) -> Option<&mut [u8]> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.buffer.get_mut(self.end..).filter(|room| !room.is_empty())
    }

    /// The next line with its end, if it is all there.
    fn line(&mut self) -> Option<&[u8]> {
        let rest = self.buffer.get(self.start..self.end)?;
        let length = rest.iter().position(|byte| *byte == b'\n')? + 1;
        self.start += length;
        rest.get(..length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(room: usize) -> Input {
        Input { buffer: vec![0; room].into(), start: 0, end: 0 }
    }

    fn arrives(input: &mut Input, bytes: &[u8]) {
        let room = input.room().unwrap();
        room[..bytes.len()].copy_from_slice(bytes);
        input.end += bytes.len();
    }

    #[test]
    fn lines_are_found_however_they_are_cut() {
        let mut input = input(8);
        arrives(&mut input, b"+OK\r");
        assert_eq!(input.line(), None);
        arrives(&mut input, b"\n:1\r");
        assert_eq!(input.line(), Some(&b"+OK\r\n"[..]));
        assert_eq!(input.line(), None);
        arrives(&mut input, b"\n:0\r\n");
        assert_eq!(input.line(), Some(&b":1\r\n"[..]));
        assert_eq!(input.line(), Some(&b":0\r\n"[..]));
        assert_eq!(input.line(), None);
        arrives(&mut input, b"-no end!");
        assert!(input.room().is_none(), "a line without an end fills it");
    }

    #[test]
    fn what_is_no_line_of_ours_is_no_answer() {
        assert_eq!(value(b"$-1\r\n").unwrap(), Value::Nil);
        assert_eq!(value(b":17\r\n").unwrap(), Value::Int(17));
        assert!(matches!(value(b"-ERR no\r\n"), Ok(Value::ServerError(_))));
        for odd in [&b"$5\r\n"[..], b">2\r\n", b"*1\r\n", b":x\r\n", b"\r\n"] {
            assert_eq!(value(odd).unwrap_err().class, FaultClass::Unknown, "{odd:?}");
        }
    }
}
