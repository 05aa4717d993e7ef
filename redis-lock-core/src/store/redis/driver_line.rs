//! A line that only the driver can use, as over TLS. One task hands it the commands one at a
//! time, in order, so that each has a reply of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::mpsc;

use crate::store::{BoxFuture, Filled, Inbox, Watcher};

type DriverReply = Result<Value, RedisError>;

/// The driver's connection, to which commands are handed one by one.
pub(super) struct DriverLine {
    /// Commands that have to be sent.
    pub(super) out: Vec<Cmd>,
    tasks: mpsc::UnboundedSender<Cmd>,
    inbox: Arc<Inbox<DriverReply>>,
    arrived: VecDeque<DriverReply>,
}

impl DriverLine {
    /// To be called on the engine's runtime.
    pub(super) fn new(driver: MultiplexedConnection) -> Self {
        let (tasks, commands) = mpsc::unbounded_channel();
        let inbox = Arc::new(Inbox::default());
        tokio::spawn(serve(driver, commands, Arc::clone(&inbox)));
        Self { out: Vec::new(), tasks, inbox, arrived: VecDeque::new() }
    }

    pub(super) fn watcher(&self) -> Watcher {
        self.inbox.watcher()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        let send = |cmd| self.tasks.send(cmd).map_err(|_| io::ErrorKind::BrokenPipe.into());
        self.out.drain(..).try_for_each(send)
    }

    /// Takes in what has arrived.
    pub(super) fn fill(&mut self) -> Filled {
        let arrived = self.inbox.take();
        let received = arrived.iter().any(Result::is_ok);
        self.arrived.extend(arrived);
        Filled { received, more: false }
    }

    pub(super) fn next_reply(&mut self) -> Option<DriverReply> {
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
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(command);
    let mut values = driver.send_packed_commands(&pipeline, 0, 1).await?;
    values.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
}
