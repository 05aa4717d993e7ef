//! A connection that only the driver can use, as over TLS. One task hands it the commands one at a
//! time, in order, so that each has a reply of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::mpsc;

use super::conversation::Conversation;
use super::decode;
use crate::store::{
    BoxFuture, Command, Filled, Pulled, Readiness, SharedNews, TaskWaker, Watcher, Wire,
};

type DriverReply = Result<Value, RedisError>;

/// Replies that the task has received.
#[derive(Default)]
struct ReplyInbox {
    replies: Mutex<VecDeque<DriverReply>>,
    news: SharedNews,
}

impl ReplyInbox {
    fn take(&self) -> VecDeque<DriverReply> {
        std::mem::take(&mut *self.replies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, reply: DriverReply) {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner).push_back(reply);
        self.news.wake();
    }
}

/// The driver's connection, to which commands are handed one by one.
pub(super) struct DriverLine {
    tasks: mpsc::UnboundedSender<Cmd>,
    inbox: Arc<ReplyInbox>,
    arrived: VecDeque<DriverReply>,
}

impl DriverLine {
    /// To be called on the engine's runtime.
    pub(super) fn new(driver: MultiplexedConnection) -> Self {
        let (tasks, commands) = mpsc::unbounded_channel();
        let inbox = Arc::new(ReplyInbox::default());
        tokio::spawn(serve(driver, commands, Arc::clone(&inbox)));
        Self { tasks, inbox, arrived: VecDeque::new() }
    }

    pub(super) fn watcher(&self) -> Watcher {
        let watched = Arc::clone(&self.inbox);
        Arc::new(move || Ok(Box::new(ReplyWatch(watched.news.watch())) as _))
    }

    pub(super) fn send(&self, cmd: Cmd) -> io::Result<()> {
        self.tasks.send(cmd).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Takes in what has arrived. Returns whether the server has said anything.
    pub(super) fn fill(&mut self) -> bool {
        let arrived = self.inbox.take();
        let received = arrived.iter().any(Result::is_ok);
        self.arrived.extend(arrived);
        received
    }

    pub(super) fn next_reply(&mut self) -> Option<DriverReply> {
        self.arrived.pop_front()
    }
}

pub(super) struct DriverWire {
    conversation: Conversation,
    /// Commands that have to be sent.
    out: Vec<Cmd>,
    line: DriverLine,
}

/// Makes a wire of a connection of the driver, on the engine's runtime.
pub(super) fn wire(
    driver: MultiplexedConnection,
    conversation: Conversation,
) -> (DriverWire, Watcher) {
    let line = DriverLine::new(driver);
    let watcher = line.watcher();
    (DriverWire { conversation, out: Vec::new(), line }, watcher)
}

impl Wire for DriverWire {
    fn push(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask(seq, command, out);
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask_asking(seq, command, out);
    }

    fn flush(&mut self) -> io::Result<()> {
        let out = &mut self.out;
        self.conversation.send_bundles(out);
        self.out.drain(..).try_for_each(|cmd| self.line.send(cmd))
    }

    fn is_flushed(&self) -> bool {
        self.out.is_empty() && !self.conversation.keeps_back()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        Ok(Filled { received: self.line.fill(), more: false })
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(done) = self.conversation.next_answer() {
            return Some(done);
        }
        while let Some(reply) = self.line.next_reply() {
            let out = &mut self.out;
            match reply {
                Ok(value) => self.conversation.take_reply(value, wants, out),
                Err(error) => self.conversation.end(decode::broken(error)),
            }
        }
        self.conversation.next_done()
    }
}

struct ReplyWatch(Arc<TaskWaker>);

impl Readiness for ReplyWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        // There is always room to send more.
        if sending { Poll::Ready(Ok(())) } else { self.0.poll_woken(context).map(Ok) }
    }
}

/// Sends the commands in order, and receives the replies in order.
async fn serve(
    driver: MultiplexedConnection,
    mut commands: mpsc::UnboundedReceiver<Cmd>,
    inbox: Arc<ReplyInbox>,
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
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(command);
    let mut values = driver.send_packed_commands(&pipeline, 0, 1).await?;
    values.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
}
