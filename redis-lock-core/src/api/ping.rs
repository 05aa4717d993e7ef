//! Whether the server can be used, and what it is.

use std::time::Duration;

use crate::api::blocking::block_on;
use crate::domain::clock::Moment;
use crate::domain::kind::Kind;
use crate::store::{Command, Verb};
use crate::{LockError, LockKey, Locks, ServerInfo};

impl Locks {
    /// How long the server takes to answer, connecting included: for a readiness probe. Of several nodes
    /// the slowest counts. It takes at most the [`command_timeout`](crate::Builder::command_timeout), and
    /// no time in memory.
    ///
    /// What is sent is a write that changes nothing, so a server that is read-only or full is an error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// assert!(locks.ping().await?.is_zero());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Backend`](LockError::Backend) with its [`kind`](crate::BackendError::kind);
    /// [`Shutdown`](LockError::Shutdown).
    ///
    /// # Cancel safety
    /// Nothing is lost and nothing is changed.
    pub async fn ping(&self) -> Result<Duration, LockError> {
        let (begun, limit, link) = (Moment::now(), self.settings().command_timeout(), self.link());
        loop {
            if link.is_closed() {
                return Err(LockError::Shutdown);
            }
            if self.settings().in_memory {
                return Ok(Duration::ZERO);
            }
            let names = |number: u32| self.names_of(&LockKey::from(format!("ping:{number}")));
            // Of several commands in a row, each has the time that is left.
            let command = |names| {
                let timeout = limit.saturating_sub(Moment::now().since(begun));
                Command { names, kind: Kind::Mutex, verb: Verb::Probe, timeout }
            };
            let fault = match link.query_each(names, command).await {
                Ok(()) => return Ok(Moment::now().since(begun)),
                Err(fault) => fault,
            };
            // A connection that was closed while idle, or a key that has moved, is noticed only by the
            // next command.
            let passes = fault.class.is_unknown() || fault.class.is_moving();
            if !passes || Moment::now().since(begun) >= limit {
                let is_over = link.is_closed();
                return Err(if is_over { LockError::Shutdown } else { self.failed(None, &fault) });
            }
        }
    }

    /// What the server is and can do, as [`status`](Self::status) says of the server of one lock. It
    /// takes at most the [`command_timeout`](crate::Builder::command_timeout).
    ///
    /// # Errors
    /// As [`status`](Self::status).
    ///
    /// # Cancel safety
    /// Nothing is lost and nothing is changed.
    pub async fn server_info(&self) -> Result<ServerInfo, LockError> {
        self.look(self.names_of(&LockKey::from_static("ping:0"))).await.map(|status| status.server)
    }

    /// [`ping`](Self::ping) for code without an async runtime.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    pub fn blocking_ping(&self) -> Result<Duration, LockError> {
        block_on(self.ping())
    }

    /// [`server_info`](Self::server_info) for code without an async runtime.
    ///
    /// # Errors
    /// As [`server_info`](Self::server_info).
    pub fn blocking_server_info(&self) -> Result<ServerInfo, LockError> {
        block_on(self.server_info())
    }
}
