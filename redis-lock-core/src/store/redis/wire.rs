//! A connection over a socket of our own. Any thread that has commands writes them to the socket; the
//! thread or task with the role of the reader reads.
//!
//! The driver has connected and authenticated. After that it is not used: its task between caller
//! and socket would cost more than all of our own work.

use std::io;
use std::mem;
use std::sync::Arc;

use super::conversation::Conversation;
use super::scan::{Scanned, scan};
use super::short;
use super::socket::Received;
use super::transport::Transport;
use crate::store::outbound::{Outbound, Sink};
use crate::store::{Command, Filled, Pulled, Wire};

/// How many bytes one read can take.
const READ_SIZE: usize = 16 * 1024;

/// A larger buffer is freed when it is empty.
const MAX_KEPT_BUFFER: usize = 256 * 1024;

pub(super) struct RedisWire {
    transport: Transport,
    conversation: Conversation,
    out: Vec<u8>,
    /// How many bytes of `out` have been sent.
    sent: usize,
    /// The socket, unless there is more between it and the commands.
    sink: Option<Arc<dyn Sink>>,
    /// Whether bytes before those in `out` are being sent.
    is_out_taken: bool,
    /// An empty buffer, to be used when the other one is given away.
    spare: Vec<u8>,
    input: InputBuffer,
}

impl RedisWire {
    pub(super) fn new(transport: Transport, conversation: Conversation) -> Self {
        let input = InputBuffer { buffer: vec![0; READ_SIZE], start: 0, end: 0 };
        let sink = transport.sink();
        let (out, spare) = (Vec::new(), Vec::new());
        Self { transport, conversation, out, sent: 0, sink, is_out_taken: false, spare, input }
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.out.len()
    }

    /// Removes what has been sent from a buffer that may never become empty.
    fn forget_sent(&mut self) {
        if self.sent > MAX_KEPT_BUFFER {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn encode_bundles(&mut self) {
        let out = &mut self.out;
        self.conversation.send_bundles(&mut |cmd| cmd.write_packed_command(out));
    }

    /// Reads the replies that are complete.
    fn read_replies(&mut self, wants: &mut dyn FnMut(u64) -> bool) {
        loop {
            let rest = self.input.rest();
            if let Some((value, length)) = short::read(rest) {
                self.input.start += length;
                let out = &mut self.out;
                self.conversation
                    .take_reply(value, wants, &mut |cmd| cmd.write_packed_command(out));
                continue;
            }
            let length = match scan(rest) {
                Ok(Scanned::Reply(length)) => length,
                Ok(Scanned::Push(length)) => {
                    self.input.start += length;
                    continue;
                }
                Ok(Scanned::Part) => return,
                Err(_) => return self.conversation.lose_place("these bytes are no reply"),
            };
            let value = redis::parse_redis_value(rest.get(..length).unwrap_or_default());
            self.input.start += length;
            match value {
                Ok(value) => {
                    let out = &mut self.out;
                    let mut send = |cmd: redis::Cmd| cmd.write_packed_command(out);
                    self.conversation.take_reply(value, wants, &mut send);
                }
                Err(error) => return self.conversation.lose_place(&error.to_string()),
            }
        }
    }
}

impl Wire for RedisWire {
    fn push(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask(seq, command, &mut |cmd| cmd.write_packed_command(out));
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask_asking(seq, command, &mut |cmd| cmd.write_packed_command(out));
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_out_taken {
            return Ok(());
        }
        self.encode_bundles();
        self.transport.flush()?;
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.transport.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.forget_sent();
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.out.shrink_to(MAX_KEPT_BUFFER);
        self.sent = 0;
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        let is_empty = self.out.is_empty() && !self.conversation.keeps_back();
        self.is_out_taken || is_empty && self.transport.is_flushed()
    }

    fn take_output(&mut self) -> Option<Outbound> {
        let sink = Arc::downgrade(self.sink.as_ref()?);
        if self.is_out_taken {
            return None;
        }
        self.encode_bundles();
        if self.out.is_empty() {
            return None;
        }
        self.is_out_taken = true;
        let out = mem::replace(&mut self.out, mem::take(&mut self.spare));
        Some(Outbound::new(sink, out, mem::take(&mut self.sent)))
    }

    fn put_back(&mut self, output: Outbound) -> io::Result<()> {
        let (mut bytes, sent, outcome) = output.into_parts();
        self.is_out_taken = false;
        if sent < bytes.len() {
            bytes.append(&mut self.out);
            self.sent = sent;
            self.out = bytes;
            self.forget_sent();
        } else {
            bytes.clear();
            bytes.shrink_to(MAX_KEPT_BUFFER);
            self.spare = bytes;
        }
        outcome
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let room = self.input.room();
        match self.transport.read(room) {
            Ok(Received { count, more }) => {
                self.input.end += count;
                Ok(Filled { received: true, more })
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

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(done) = self.conversation.next_answer() {
            return Some(done);
        }
        self.read_replies(wants);
        self.conversation.next_done()
    }
}

/// Bytes that have arrived and were not parsed.
struct InputBuffer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl InputBuffer {
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
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
