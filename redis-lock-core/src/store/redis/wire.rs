//! A connection over a socket of our own. Any thread that has commands writes them to the socket; the
//! thread or task with the role of the reader reads.
//!
//! The driver has connected and authenticated. After that it is not used: its task between caller
//! and socket would cost more than all of our own work.

use std::io;

use super::conversation::Conversation;
use super::input::{Input, MAX_KEPT_BUFFER};
use super::socket::Socket;
use crate::store::{Command, Filled, Pulled, Wire};

pub(super) struct RedisWire {
    socket: Socket,
    conversation: Conversation,
    out: Vec<u8>,
    /// How many bytes of `out` have been sent.
    sent: usize,
    input: Input,
}

impl RedisWire {
    pub(super) fn new(socket: Socket, conversation: Conversation) -> Self {
        Self { socket, conversation, out: Vec::new(), sent: 0, input: Input::new() }
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
        self.conversation.send_bundles(out);
    }

    /// Reads the replies that are complete.
    fn read_replies(&mut self, wants: &mut dyn FnMut(u64) -> bool) {
        loop {
            match self.input.next_reply() {
                Ok(Some(value)) => {
                    let out = &mut self.out;
                    self.conversation.take_reply(value, wants, out);
                }
                Ok(None) => return,
                Err(what) => return self.conversation.lose_place(&what),
            }
        }
    }
}

impl Wire for RedisWire {
    fn push(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask(seq, command, out);
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask_asking(seq, command, out);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encode_bundles();
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
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
        self.out.is_empty() && !self.conversation.keeps_back()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        self.input.fill(&self.socket)
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(done) = self.conversation.next_answer() {
            return Some(done);
        }
        self.read_replies(wants);
        self.conversation.next_done()
    }
}
