//! Plain sockets, which any thread can use and any runtime can watch, and the replies that arrive on them.

use std::io::{self, Read, Write};
use std::net;
#[cfg(unix)]
use std::os::fd::OwnedFd;
#[cfg(unix)]
use std::os::unix::net as unix;
use std::task::{Context, Poll};

use redis::Value;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::store::Filled;

/// A socket that never blocks.
#[derive(Debug)]
pub(super) struct Socket {
    stream: net::TcpStream,
    /// The same socket, registered with the runtime on which it is polled.
    watched: Option<TcpStream>,
}

impl From<net::TcpStream> for Socket {
    fn from(stream: net::TcpStream) -> Self {
        Self { stream, watched: None }
    }
}

/// To write, read, watch and close a stream, the system calls are the same for all families of sockets.
#[cfg(unix)]
impl From<unix::UnixStream> for Socket {
    fn from(stream: unix::UnixStream) -> Self {
        net::TcpStream::from(OwnedFd::from(stream)).into()
    }
}

impl Socket {
    /// The same socket, registered with the runtime that this is called on.
    pub(super) fn registered(&self) -> io::Result<TcpStream> {
        TcpStream::from_std(self.stream.try_clone()?)
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes)
    }

    /// # Errors
    /// `UnexpectedEof` when the server has closed the connection, and `WouldBlock` when nothing has
    /// arrived.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let count = (&self.stream).read(into)?;
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
    }
}

impl Socket {
    /// See [`Wire::poll_ready`](crate::store::Wire::poll_ready).
    pub(super) fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
        sending: bool,
    ) -> Poll<io::Result<()>> {
        let watched = match self.watched.take() {
            Some(watched) => watched,
            None => self.registered()?,
        };
        let can_read = watched.poll_read_ready(context).map_ok(|()| Interest::READABLE);
        let can_write = match sending {
            true => watched.poll_write_ready(context).map_ok(|()| Interest::WRITABLE),
            false => Poll::Pending,
        };
        let mut ready = Poll::Pending;
        for polled in [can_read, can_write] {
            if let Poll::Ready(interest) = polled {
                // Reads and writes go on until nothing is left, so the readiness is cleared before them,
                // and what happens meanwhile is reported again.
                let used_up = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = watched.try_io(interest?, used_up);
                ready = Poll::Ready(Ok(()));
            }
        }
        // After an error it is registered anew.
        self.watched = Some(watched);
        ready
    }

    pub(super) fn unwatch(&mut self) {
        self.watched = None;
    }
}

/// How many bytes one read can take.
const READ_SIZE: usize = 16 * 1024;

/// A larger buffer is freed when it is empty.
pub(super) const MAX_KEPT_BUFFER: usize = 256 * 1024;

/// What has arrived and was not parsed.
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    scan: Scan,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; READ_SIZE], start: 0, end: 0, scan: Scan::default() }
    }

    /// Reads once.
    pub(super) fn fill(&mut self, socket: &Socket) -> io::Result<Filled> {
        let room = self.room();
        let most = room.len();
        match socket.read(room) {
            Ok(count) => {
                self.end += count;
                Ok(Filled { received: true, more: count == most })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(Filled { received: false, more: false })
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                Ok(Filled { received: false, more: true })
            }
            Err(error) => Err(error),
        }
    }

    /// The next reply, if it is complete.
    ///
    /// # Errors
    /// Why the bytes can't be understood. Nothing that follows can be, either.
    pub(super) fn next_reply(&mut self) -> Result<Option<Value>, String> {
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            match self.scan.go_on(rest) {
                Ok(Scanned::Reply(length)) => {
                    self.scan = Scan::default();
                    let value = value_of(rest.get(..length).unwrap_or_default());
                    self.start += length;
                    return value.map(Some);
                }
                Ok(Scanned::Push(length)) => {
                    self.scan = Scan::default();
                    self.start += length;
                }
                Ok(Scanned::Part) => return Ok(None),
                Err(_) => return Err("these bytes are no reply".into()),
            }
        }
    }

    /// The free part of the buffer.
    fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > MAX_KEPT_BUFFER {
                self.buffer = vec![0; READ_SIZE];
            }
        } else if self.buffer.len() - self.end < READ_SIZE / 4 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < READ_SIZE / 4 {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }
}

/// The value of a reply. The driver's parser takes long for the replies that come most often.
fn value_of(reply: &[u8]) -> Result<Value, String> {
    match reply {
        b"+OK\r\n" => Ok(Value::Okay),
        b":0\r\n" => Ok(Value::Int(0)),
        b":1\r\n" => Ok(Value::Int(1)),
        b"$-1\r\n" => Ok(Value::Nil),
        other => redis::parse_redis_value(other).map_err(|error| error.to_string()),
    }
}

/// The longest reply that is accepted, far more than any command needs.
const LONGEST: usize = 64 * 1024 * 1024;

/// The largest number of values in one reply.
const MOST_VALUES: usize = 4 * 1024 * 1024;

/// The bytes are no reply, so it is unknown where the next reply begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// What the stream begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scanned {
    /// A reply of this many bytes.
    Reply(usize),
    /// A push message of this many bytes.
    Push(usize),
    /// An incomplete reply.
    Part,
}

/// How far a reply was scanned that arrives in pieces, so that no piece is looked at twice.
#[derive(Debug)]
pub(super) struct Scan {
    /// Where the next value begins.
    at: usize,
    /// Up to where no end of its first line was found.
    looked: usize,
    /// How many values are missing before the reply is complete.
    missing: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self { at: 0, looked: 0, missing: 1 }
    }
}

impl Scan {
    /// Finds out what the stream begins with. The stream is what it was before, with more at its
    /// end. This parses no values and does not recurse. After a part it continues from there.
    pub(super) fn go_on(&mut self, bytes: &[u8]) -> Result<Scanned, Malformed> {
        while self.missing > 0 {
            let from = self.at.max(self.looked);
            let rest = bytes.get(from..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                self.looked = bytes.len();
                return if bytes.len() > LONGEST { Err(Malformed) } else { Ok(Scanned::Part) };
            };
            let line = bytes.get(self.at..from + length);
            let line = line.and_then(|line| line.strip_suffix(b"\r")).ok_or(Malformed)?;
            self.at = from + length + 1;
            self.missing -= 1;
            self.value(line)?;
            if self.at > LONGEST || self.missing > MOST_VALUES {
                return Err(Malformed);
            }
        }
        if self.at > bytes.len() {
            return Ok(Scanned::Part);
        }
        let is_push = bytes.first() == Some(&b'>');
        Ok(if is_push { Scanned::Push(self.at) } else { Scanned::Reply(self.at) })
    }

    /// Counts what belongs to a value with this first line.
    fn value(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let (kind, text) = line.split_first().ok_or(Malformed)?;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Some(length) = number(text)? {
                    self.at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => self.missing += number(text)?.unwrap_or(0),
            b'%' => self.missing += number(text)?.unwrap_or(0) * 2,
            // Attributes come before the value that they belong to.
            b'|' => self.missing += number(text)?.unwrap_or(0) * 2 + 1,
            _ => return Err(Malformed),
        }
        Ok(())
    }
}

/// Finds out what the stream begins with.
#[cfg(test)]
pub(super) fn scan(bytes: &[u8]) -> Result<Scanned, Malformed> {
    Scan::default().go_on(bytes)
}

/// A length; `None` for the nil of the older protocol.
fn number(text: &[u8]) -> Result<Option<usize>, Malformed> {
    if text == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let number: usize = text.parse().map_err(|_| Malformed)?;
    if number > LONGEST { Err(Malformed) } else { Ok(Some(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(reply: &[u8]) {
        assert_eq!(scan(reply), Ok(Scanned::Reply(reply.len())), "{:?}", reply.escape_ascii());
        let mut pieces = Scan::default();
        for end in 0..reply.len() {
            assert_eq!(scan(&reply[..end]), Ok(Scanned::Part), "{:?}", reply[..end].escape_ascii());
            assert_eq!(pieces.go_on(&reply[..end]), Ok(Scanned::Part), "in pieces");
        }
        assert_eq!(pieces.go_on(reply), Ok(Scanned::Reply(reply.len())), "in pieces");
        let more = [reply, b"+OK\r\n"].concat();
        assert_eq!(scan(&more), Ok(Scanned::Reply(reply.len())));
    }

    #[test]
    fn each_reply_has_the_value_that_the_driver_reads() {
        for reply in [&b"+OK\r\n"[..], b":0\r\n", b":1\r\n", b"$-1\r\n", b"+PONG\r\n", b":17\r\n"] {
            assert_eq!(value_of(reply).ok(), redis::parse_redis_value(reply).ok());
        }
    }

    #[test]
    fn the_end_of_a_reply_is_found_wherever_the_stream_is_cut() {
        for reply in [
            &b"+OK\r\n"[..],
            b"-ERR no\r\n",
            b":17\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"_\r\n",
            b"$0\r\n\r\n",
            b"$5\r\nhe\r\nl\r\n",
            b"*0\r\n",
            b"*3\r\n:1\r\n$1\r\na\r\n*2\r\n+a\r\n_\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b"|1\r\n+ttl\r\n:1\r\n$1\r\na\r\n",
            b"=5\r\ntxt:a\r\n",
            b"#t\r\n",
            b",1.5\r\n",
        ] {
            whole(reply);
        }
    }

    #[test]
    fn no_piece_of_a_long_reply_is_looked_at_twice() {
        let mut reply = b"*200000\r\n".to_vec();
        reply.extend(b"$20\r\n01234567890123456789\r\n".repeat(200_000));
        let mut pieces = Scan::default();
        for end in (0..reply.len()).step_by(4_096) {
            assert_eq!(pieces.go_on(&reply[..end]), Ok(Scanned::Part));
            assert!(pieces.at + 4_096 >= end, "it goes on from {} at {end}", pieces.at);
        }
        assert_eq!(pieces.go_on(&reply), Ok(Scanned::Reply(reply.len())));
    }

    #[test]
    fn a_push_is_distinguished_from_a_reply() {
        assert_eq!(scan(b">2\r\n+a\r\n+b\r\n:1\r\n"), Ok(Scanned::Push(12)));
    }

    #[test]
    fn what_is_no_reply_is_malformed() {
        for odd in [&b"OK\r\n"[..], b"\r\n", b"+OK\n", b"$x\r\n", b"*-2\r\n", b"$99999999999\r\n"] {
            assert_eq!(scan(odd), Err(Malformed), "{:?}", odd.escape_ascii());
        }
        assert_eq!(scan(b"*9999999\r\n"), Err(Malformed), "more values than any reply has");
    }
}
