//! Bytes that have arrived on a connection, and the replies in them.

use std::io;

use redis::Value;

use super::scan::{Scan, Scanned};
use super::socket::Socket;
use crate::store::Filled;

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
                    let value = redis::parse_redis_value(rest.get(..length).unwrap_or_default());
                    self.start += length;
                    return value.map(Some).map_err(|error| error.to_string());
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
