//! The line to a server: commands go out in order, and a reply to each comes back. None of its methods
//! blocks.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::mpsc;

use super::decode;
use super::socket::{Input, MAX_KEPT_BUFFER, Socket};
use crate::domain::fault::{Fault, FaultClass};
use crate::store::{BoxFuture, Filled, Inbox, Watcher};

/// Receives the commands that have to be sent.
pub(super) trait CommandSink {
    fn send(&mut self, cmd: Cmd);
}

impl CommandSink for Vec<Cmd> {
    fn send(&mut self, cmd: Cmd) {
        self.push(cmd);
    }
}

/// The bytes of the commands, as the server reads them.
impl CommandSink for Vec<u8> {
    fn send(&mut self, cmd: Cmd) {
        cmd.write_packed_command(self);
    }
}

pub(super) type Send<'a> = &'a mut dyn CommandSink;

pub(super) enum ServerLine {
    /// A socket of our own. The driver has connected and authenticated, and is not used after that: its
    /// task between caller and socket would cost more than all of our own work.
    Own(OwnLine),
    /// Only the driver can use it, as over TLS.
    Driver(DriverLine),
}

/// Any thread that has commands writes them to the socket; the thread or task with the role of the reader
/// reads.
pub(super) struct OwnLine {
    socket: Socket,
    out: Vec<u8>,
    /// How many bytes of `out` have been sent.
    sent: usize,
    input: Input,
}

impl ServerLine {
    pub(super) fn over(socket: Socket) -> Self {
        Self::Own(OwnLine { socket, out: Vec::new(), sent: 0, input: Input::new() })
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

    /// Where commands are put for the next flush.
    pub(super) fn out(&mut self) -> Send<'_> {
        match self {
            Self::Own(line) => &mut line.out,
            Self::Driver(line) => &mut line.out,
        }
    }

    /// Sends what can be sent now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Own(line) => line.flush(),
            Self::Driver(line) => line.flush(),
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Self::Own(line) => line.out.is_empty(),
            Self::Driver(line) => line.out.is_empty(),
        }
    }

    /// Sends these commands.
    ///
    /// # Errors
    /// Those of the socket, and one if it does not take all bytes now.
    pub(super) fn send(&mut self, cmds: impl IntoIterator<Item = Cmd>) -> io::Result<()> {
        cmds.into_iter().for_each(|cmd| self.out().send(cmd));
        self.flush()?;
        if self.is_flushed() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Takes in what has arrived.
    pub(super) fn fill(&mut self) -> io::Result<Filled> {
        match self {
            Self::Own(line) => line.input.fill(&line.socket),
            Self::Driver(line) => Ok(line.fill()),
        }
    }

    /// The next reply, if it has arrived.
    pub(super) fn next_reply(&mut self) -> Result<Option<Value>, Fault> {
        match self {
            Self::Own(line) => line.input.next_reply().map_err(|what| lost_place(&what)),
            Self::Driver(line) => line.next_reply().transpose().map_err(decode::broken),
        }
    }
}

impl OwnLine {
    fn flush(&mut self) -> io::Result<()> {
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
}

type DriverReply = Result<Value, RedisError>;

/// The driver's connection, as over TLS. One task hands it the commands one at a time, in order, so that each
/// gets its reply.
pub(super) struct DriverLine {
    /// Commands that have to be sent.
    out: Vec<Cmd>,
    tasks: mpsc::UnboundedSender<Cmd>,
    inbox: Arc<Inbox<DriverReply>>,
    arrived: VecDeque<DriverReply>,
}

impl DriverLine {
    /// To be called on the engine's runtime.
    fn new(driver: MultiplexedConnection) -> Self {
        let (tasks, commands) = mpsc::unbounded_channel();
        let inbox = Arc::new(Inbox::default());
        tokio::spawn(serve(driver, commands, Arc::clone(&inbox)));
        Self { out: Vec::new(), tasks, inbox, arrived: VecDeque::new() }
    }

    fn watcher(&self) -> Watcher {
        self.inbox.watcher()
    }

    fn flush(&mut self) -> io::Result<()> {
        let send = |cmd| self.tasks.send(cmd).map_err(|_| io::ErrorKind::BrokenPipe.into());
        self.out.drain(..).try_for_each(send)
    }

    /// Takes in what has arrived.
    fn fill(&mut self) -> Filled {
        let arrived = self.inbox.take();
        let received = arrived.iter().any(Result::is_ok);
        self.arrived.extend(arrived);
        Filled { received, more: false }
    }

    fn next_reply(&mut self) -> Option<DriverReply> {
        self.arrived.pop_front()
    }
}

/// Sends the commands in order, and receives the replies in order.
async fn serve(
    driver: MultiplexedConnection,
    mut commands: mpsc::UnboundedReceiver<Cmd>,
    inbox: Arc<Inbox<DriverReply>>,
) {
    let mut under_way = FuturesOrdered::<BoxFuture<'_, DriverReply>>::new();
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(command) => {
                    let mut asking: BoxFuture<'_, DriverReply> = Box::pin(ask(driver.clone(), command));
                    // The first poll hands the command to the driver, so it happens here, in order.
                    match poll_once(&mut asking).await {
                        Poll::Ready(reply) if under_way.is_empty() => inbox.put(reply),
                        Poll::Ready(reply) => {
                            under_way.push_back(Box::pin(async { reply }));
                        }
                        Poll::Pending => under_way.push_back(asking),
                    }
                }
                None => return,
            },
            Some(reply) = under_way.next(), if !under_way.is_empty() => inbox.put(reply),
        }
    }
}

async fn poll_once<T>(asking: &mut BoxFuture<'_, T>) -> Poll<T> {
    std::future::poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await
}

async fn ask(mut driver: MultiplexedConnection, command: Cmd) -> DriverReply {
    let mut values = ask_all(&mut driver, [command]).await?;
    values.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
}

/// Sends commands over the driver. Error replies are among the answers.
pub(super) async fn ask_all(
    driver: &mut MultiplexedConnection,
    cmds: impl IntoIterator<Item = Cmd>,
) -> Result<Vec<Value>, RedisError> {
    let mut pipeline = Pipeline::new();
    for cmd in cmds {
        pipeline.add_command(cmd);
    }
    let count = pipeline.len();
    driver.send_packed_commands(&pipeline, 0, count).await
}

pub(super) fn lost_place(what: &str) -> Fault {
    let what = format!("the place in the stream of replies is lost: {what}");
    Fault::new(FaultClass::Unknown, what)
}
