//! Connections that serve one transaction at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::domain::error::{Fault, FaultClass};
use crate::store::redis::decode;
use crate::store::{Command, Verb};

/// How many transactions run at once. As many renewals may run besides them.
const SIZE: usize = 4;

/// Callers of one lane wait for each other when all its connections are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Renewals. They must not wait for other commands, or leases would end meanwhile.
    Renewals,
    Others,
}

impl Lane {
    pub(super) fn of(command: &Command) -> Self {
        match command.verb {
            Verb::Renew { .. } => Self::Renewals,
            _ => Self::Others,
        }
    }
}

/// The connections of one server, and what was found out about the user's rights.
pub(in crate::store::redis) struct Pool {
    client: redis::Client,
    /// How long connecting may take.
    time_limit: Duration,
    idle: Mutex<Vec<MultiplexedConnection>>,
    slots: Semaphore,
    renewals: Semaphore,
    /// For commands outside of transactions.
    beside: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    pub(super) may_publish: AtomicBool,
    pub(super) may_ask_listeners: AtomicBool,
    /// Whether something has arrived since the last call of `take_heard`.
    has_heard: AtomicBool,
}

/// A connection for one transaction. It is closed unless it is given back, because a transaction
/// that was dropped halfway leaves it in an unknown state.
pub(super) struct Leased<'a> {
    pool: &'a Pool,
    connection: MultiplexedConnection,
    /// Whether it was used before, so that the server may have closed it meanwhile.
    pub(super) is_used: bool,
    _slot: Option<SemaphorePermit<'a>>,
}

impl Pool {
    pub(in crate::store::redis) fn new(client: redis::Client, time_limit: Duration) -> Self {
        Self {
            client,
            time_limit,
            idle: Mutex::default(),
            slots: Semaphore::new(SIZE),
            renewals: Semaphore::new(SIZE),
            beside: tokio::sync::Mutex::new(None),
            may_publish: AtomicBool::new(true),
            may_ask_listeners: AtomicBool::new(true),
            has_heard: AtomicBool::new(false),
        }
    }

    pub(super) async fn lease(&self, lane: Lane) -> Result<Leased<'_>, Fault> {
        let slots = match lane {
            Lane::Renewals => &self.renewals,
            Lane::Others => &self.slots,
        };
        // The semaphore is never closed.
        let slot = slots.acquire().await.ok();
        let idle = self.idle().pop();
        let is_used = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Leased { pool: self, connection, is_used, _slot: slot })
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Fault> {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        match timeout(self.time_limit, connecting).await {
            Ok(connected) => connected.map_err(decode::unreachable),
            Err(_) => {
                let what = "the server can't be used: it accepts no connection for transactions";
                Err(Fault::new(FaultClass::Refused, what))
            }
        }
    }

    /// Sends commands outside of transactions, on a connection of their own.
    pub(super) async fn ask_beside(&self, cmds: Vec<Cmd>) -> Result<Vec<Value>, Fault> {
        let mut beside = self.beside.lock().await;
        let mut connection = match beside.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        *beside = Some(connection.clone());
        drop(beside);
        match ask(&mut connection, cmds).await {
            Ok(answers) => Ok(answers),
            Err(error) => {
                self.beside.lock().await.take();
                Err(lost(&error))
            }
        }
    }

    /// Whether something has arrived since the last call.
    pub(super) fn take_heard(&self) -> bool {
        self.has_heard.swap(false, Ordering::Relaxed)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leased<'_> {
    pub(super) async fn ask(&mut self, cmds: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        let answers = ask(&mut self.connection, cmds).await;
        if answers.is_ok() {
            self.pool.has_heard.store(true, Ordering::Relaxed);
        }
        answers
    }

    /// To be called when nothing is watched and nothing is queued on it.
    pub(super) fn give_back(self) {
        self.pool.idle().push(self.connection);
    }
}

async fn ask(
    connection: &mut MultiplexedConnection,
    cmds: Vec<Cmd>,
) -> Result<Vec<Value>, RedisError> {
    let count = cmds.len();
    let mut pipeline = Pipeline::with_capacity(count);
    for cmd in cmds {
        pipeline.add_command(cmd);
    }
    connection.send_packed_commands(&pipeline, 0, count).await
}

/// The connection ended before anything was written.
pub(super) fn lost(error: &RedisError) -> Fault {
    let what = format!("the connection for a transaction broke before it began: {error}");
    Fault::new(FaultClass::Refused, what)
}
