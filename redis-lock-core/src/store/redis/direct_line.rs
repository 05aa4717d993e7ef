//! A connection for a few commands beside those for locks. Each has one reply, in order.

use std::io;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::driver_wire::DriverLine;
use super::input::Input;
use super::socket::Socket;
use crate::store::Watcher;

/// None of its methods blocks.
pub(super) enum DirectLine {
    Own(OwnLine),
    /// Only the driver can use it.
    Driver(DriverLine),
}

/// A line over a socket of our own.
pub(super) struct OwnLine {
    socket: Socket,
    input: Input,
}

impl DirectLine {
    pub(super) fn over(socket: Socket) -> Self {
        Self::Own(OwnLine { socket, input: Input::new() })
    }

    /// To be called on the engine's runtime.
    pub(super) fn by(driver: MultiplexedConnection) -> Self {
        Self::Driver(DriverLine::new(driver))
    }

    pub(super) fn watcher(&self) -> Watcher {
        match self {
            Self::Own(line) => line.socket.watcher(),
            Self::Driver(line) => line.watcher(),
        }
    }

    /// Sends these commands.
    ///
    /// # Errors
    /// Also when the socket does not take them all now.
    pub(super) fn send(&mut self, cmds: impl IntoIterator<Item = Cmd>) -> io::Result<()> {
        match self {
            Self::Own(line) => line.send(cmds),
            Self::Driver(line) => cmds.into_iter().try_for_each(|cmd| line.send(cmd)),
        }
    }

    /// Takes in what has arrived. Returns whether that was anything.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        match self {
            Self::Own(line) => line.fill(),
            Self::Driver(line) => Ok(line.fill()),
        }
    }

    /// The next reply, if it has arrived.
    pub(super) fn next_reply(&mut self) -> Result<Option<Value>, String> {
        match self {
            Self::Own(line) => line.input.next_reply(),
            Self::Driver(line) => line.next_reply().transpose().map_err(|error| error.to_string()),
        }
    }
}

impl OwnLine {
    fn send(&mut self, cmds: impl IntoIterator<Item = Cmd>) -> io::Result<()> {
        let mut bytes = Vec::new();
        cmds.into_iter().for_each(|cmd| cmd.write_packed_command(&mut bytes));
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut received = false;
        loop {
            let filled = self.input.fill(&self.socket)?;
            received |= filled.received;
            if !filled.more {
                return Ok(received);
            }
        }
    }
}
