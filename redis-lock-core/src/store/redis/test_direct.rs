//! Sends commands to a real server without an engine, for tests.

use std::sync::Arc;
use std::time::Duration;

use redis::{Connection, ConnectionLike, Value};
use testbed::{Server, ServerBinary, ServerBuilder};

use super::conversation::{Step, read};
use super::encode::Context;
use super::listen::Channel;
use super::probe::Delete;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Acquire, Answer, Command, Newest, Verb};

/// A server, and one connection to it.
pub(super) struct Direct {
    pub(super) server: Server,
    pub(super) connection: Connection,
    pub(super) delete: Delete,
}

impl Direct {
    pub(super) fn start(builder: ServerBuilder) -> Self {
        let server = builder.start();
        let connection = server.client().get_connection().unwrap();
        Self { server, connection, delete: Delete::Script }
    }

    /// One for each server that is installed.
    pub(super) fn each() -> Vec<Self> {
        let start = |binary| Self::start(Server::builder().binary(binary));
        // The oldest that can be had knows fewer commands and options.
        Self::binaries().chain(ServerBinary::redis_5()).map(start).collect()
    }

    /// The same, but only of versions that can be used by users with few rights.
    pub(super) fn each_with_users() -> impl Iterator<Item = Self> {
        let has_users = |direct: &Self| direct.server.binary().version() >= (6, 0, 0);
        Self::each().into_iter().filter(has_users)
    }

    pub(super) fn binaries() -> impl Iterator<Item = ServerBinary> {
        [Some(ServerBinary::any()), ServerBinary::valkey(9), redis_6()].into_iter().flatten()
    }

    /// Connects as a user with these rights and no others.
    pub(super) fn become_user(&mut self, rights: &str) {
        self.server.run::<()>(&format!("ACL SETUSER app reset on >secret {rights}"));
        let url = format!("redis://app:secret@127.0.0.1:{}", self.server.port());
        self.connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    }

    /// Runs a command as the store would; grants are published at `channel`.
    pub(super) fn send(&mut self, command: &Command, channel: &str) -> Result<Answer, Fault> {
        let context = Context { delete: self.delete, channel: &Channel::listened_at(channel) };
        let (mut step, mut cmd) = Step::first(command, &context).unwrap();
        loop {
            let value = self.query(&cmd);
            step = match read(command, step, value, &context) {
                Ok(answer) => return answer,
                Err(next) => next,
            };
            cmd = step.cmd(command, &context).unwrap();
        }
    }

    /// A verb for one lock of this kind at the key `a`.
    pub(super) fn ask(&mut self, kind: Kind, verb: Verb) -> Result<Answer, Fault> {
        self.send(&command(kind, verb), "-")
    }

    fn query(&mut self, cmd: &redis::Cmd) -> Value {
        // As part of a pipeline, what the server refuses is an answer like others.
        let mut answers =
            self.connection.req_packed_commands(&cmd.get_packed_command(), 0, 1).unwrap();
        answers.remove(0)
    }
}

/// Redis 6.2, if its path is given: distributions have dropped it.
pub(super) fn redis_6() -> Option<ServerBinary> {
    ServerBinary::at(std::env::var_os("REDIS_LOCKS_SERVER_6")?)
}

pub(super) fn command(kind: Kind, verb: Verb) -> Command {
    let names = names();
    Command { names, kind, verb, timeout: Duration::from_secs(1) }
}

pub(super) fn names() -> Names {
    Names::new("lock", "lock:a")
}

/// A token in its full form.
pub(super) fn token(number: usize) -> Arc<str> {
    format!("rl1.{number:032x}.a.0.").into()
}

pub(super) fn acquire(number: usize, queue: bool) -> Verb {
    let queue = queue.then_some(Duration::from_secs(5));
    Verb::Acquire(Acquire { queue, ..Acquire::of(token(number), Some(Duration::from_secs(30))) })
}

/// The first question of a call that ends older ones, of a process of its own.
pub(super) fn newest(number: usize) -> Verb {
    let token = format!("rl1.{:032X}.m{number}.0.", 0xA0 + number).into();
    let (queue, newest) = (Some(Duration::from_secs(5)), Some(Newest::First));
    Verb::Acquire(Acquire { queue, newest, ..Acquire::of(token, Some(Duration::from_secs(30))) })
}

pub(super) fn release(number: usize) -> Verb {
    Verb::Release {
        token: token(number),
        waited_for: true,
        keep: None,
        share: None,
        tombstone: None,
    }
}
