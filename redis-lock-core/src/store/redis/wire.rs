//! One connection: what is said, and the line that it goes over.

use std::io;

use super::conversation::Conversation;
use super::line::ServerLine;
use crate::store::{Command, Filled, Pulled, Wire};

pub(super) struct RedisWire {
    line: ServerLine,
    conversation: Conversation,
}

impl RedisWire {
    pub(super) fn new(line: ServerLine, conversation: Conversation) -> Self {
        Self { line, conversation }
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        match &self.line {
            ServerLine::Own(line) => line.buffered(),
            ServerLine::Driver(_) => 0,
        }
    }

    /// Reads the replies that have arrived.
    fn read_replies(&mut self, wants: &mut dyn FnMut(u64) -> bool) {
        loop {
            match self.line.next_reply() {
                Ok(Some(value)) => self.conversation.take_reply(value, wants, self.line.out()),
                Ok(None) => return,
                Err(fault) => return self.conversation.end(fault),
            }
        }
    }
}

impl Wire for RedisWire {
    fn push(&mut self, seq: u64, command: Command) {
        self.conversation.ask(seq, command, self.line.out());
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        self.conversation.ask_asking(seq, command, self.line.out());
    }

    fn flush(&mut self) -> io::Result<()> {
        self.conversation.send_bundles(self.line.out());
        self.line.flush()
    }

    fn is_flushed(&self) -> bool {
        self.line.is_flushed() && !self.conversation.keeps_back()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        self.line.fill()
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(done) = self.conversation.next_answer() {
            return Some(done);
        }
        self.read_replies(wants);
        self.conversation.next_done()
    }
}
