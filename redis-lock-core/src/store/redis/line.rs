//! The line to a server: commands go out in order, and a reply to each comes back. None of its methods
//! blocks.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::mpsc;

use super::decode;
use super::login::Login;
use super::socket::{Input, MAX_KEPT_BUFFER, Socket};
use crate::domain::fault::{Fault, FaultClass};
use crate::store::{BoxFuture, Filled, Inbox};

/// Receives the commands that have to be sent.
pub(super) trait CommandSink {
    fn send(&mut self, cmd: Cmd);
}

impl CommandSink for Vec<Cmd> {
    fn send(&mut self, cmd: Cmd) {
        self.push(cmd);
    }
}

/// Commands are put here for the next flush.
impl CommandSink for ServerLine {
    fn send(&mut self, cmd: Cmd) {
        self.sent += 1;
        match &mut self.way {
            LineWay::Own(line) => cmd.write_packed_command(&mut line.out),
            LineWay::Driver(line) => line.out.push(cmd),
        }
    }
}

pub(super) type Send<'a> = &'a mut dyn CommandSink;

pub(super) struct ServerLine {
    way: LineWay,
    /// How many commands were sent.
    sent: u64,
    /// How many replies have arrived.
    answered: u64,
    login: Option<Login>,
    /// How many commands were sent before each `AUTH` that has no reply yet.
    logins: VecDeque<u64>,
}

enum LineWay {
    /// A socket of our own. The driver has connected and authenticated, and is not used after that: its
    /// task between caller and socket would cost more than all of our own work.
    Own(OwnLine),
    /// Only the driver can use it, as over TLS.
    Driver(DriverLine),
}

/// Any thread that has commands writes them to the socket; the thread or task with the role of the reader
/// reads.
struct OwnLine {
    socket: Socket,
    out: Vec<u8>,
    /// How many bytes of `out` have been sent.
    sent: usize,
    input: Input,
}

impl ServerLine {
    pub(super) fn over(socket: Socket, login: Option<Login>) -> Self {
        let line = OwnLine { socket, out: Vec::new(), sent: 0, input: Input::new() };
        Self::new(LineWay::Own(line), login)
    }

    /// To be called on the engine's runtime.
    pub(super) fn by(driver: MultiplexedConnection, login: Option<Login>) -> Self {
        Self::new(LineWay::Driver(DriverLine::new(driver)), login)
    }

    fn new(way: LineWay, login: Option<Login>) -> Self {
        Self { way, sent: 0, answered: 0, login, logins: VecDeque::new() }
    }

    /// See [`Wire::poll_ready`](crate::store::Wire::poll_ready). The driver takes whatever there is to send.
    pub(super) fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
        sending: bool,
    ) -> Poll<io::Result<()>> {
        let ready = match &mut self.way {
            LineWay::Own(line) => line.socket.poll_ready(context, sending),
            LineWay::Driver(_) if sending => Poll::Ready(Ok(())),
            LineWay::Driver(line) => line.inbox.poll_news(context),
        };
        match &mut self.login {
            Some(login) if ready.is_pending() => login.poll_changed(context).map(Ok),
            _ => ready,
        }
    }

    pub(super) fn unwatch(&mut self) {
        if let LineWay::Own(line) = &mut self.way {
            line.socket.unwatch();
        }
    }

    /// Sends what can be sent now. Other credentials go along: no command is half sent here.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(auth) = self.login.as_mut().and_then(Login::renewed) {
            self.logins.push_back(self.sent);
            self.send(auth);
        }
        match &mut self.way {
            LineWay::Own(line) => line.flush(),
            LineWay::Driver(line) => line.flush(),
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        match &self.way {
            LineWay::Own(line) => line.out.is_empty(),
            LineWay::Driver(line) => line.out.is_empty(),
        }
    }

    /// Sends these commands.
    ///
    /// # Errors
    /// Those of the socket, and one if it does not take all bytes now.
    pub(super) fn send_all(&mut self, cmds: impl IntoIterator<Item = Cmd>) -> io::Result<()> {
        cmds.into_iter().for_each(|cmd| self.send(cmd));
        self.flush()?;
        if self.is_flushed() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Takes in what has arrived. Where there are other credentials, nothing else may be sent soon.
    pub(super) fn fill(&mut self) -> io::Result<Filled> {
        if self.login.is_some() {
            self.flush()?;
        }
        match &mut self.way {
            LineWay::Own(line) => line.input.fill(&line.socket),
            LineWay::Driver(line) => Ok(line.fill()),
        }
    }

    /// The next reply, if it has arrived.
    pub(super) fn next_reply(&mut self) -> Result<Option<Value>, Fault> {
        loop {
            let reply = match &mut self.way {
                LineWay::Own(line) => line.input.next_reply().map_err(|what| lost_place(&what)),
                LineWay::Driver(line) => line.next_reply().transpose().map_err(decode::broken),
            }?;
            if let (Some(reply), Some(login)) = (&reply, &self.login) {
                login.source().hear(reply);
                let is_of_auth = self.logins.front() == Some(&self.answered);
                self.answered += 1;
                if is_of_auth {
                    self.logins.pop_front();
                    continue;
                }
            }
            return Ok(reply);
        }
    }

    /// What became of a command.
    pub(super) fn judge(&self, fault: Fault) -> Fault {
        match &self.login {
            Some(login) => login.source().judge(fault),
            None => fault,
        }
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        match &self.way {
            LineWay::Own(line) => line.out.len(),
            LineWay::Driver(_) => 0,
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
struct DriverLine {
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
