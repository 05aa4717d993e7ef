//! Two processes' worth of locks on one arbiter: a server of either family, or memory.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use redis_locks::{Guard, LockError, Locks, Request};
use testbed::{Server, ServerBinary};

/// An arbiter and two managers that know nothing of each other.
pub struct Arena {
    pub name: &'static str,
    pub server: Option<Server>,
    pub one: Locks,
    pub other: Locks,
}

/// Long enough for what must happen on a busy machine; nothing waits for it to pass.
pub const LONG: Duration = Duration::from_secs(20);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Arena {
    pub fn memory() -> Self {
        let one = Locks::in_memory();
        Self { name: "memory", server: None, other: one.clone(), one }
    }

    pub fn on(name: &'static str, server: Server) -> Self {
        let one = Locks::open(server.url()).unwrap();
        let other = Locks::open(server.url()).unwrap();
        Self { name, server: Some(server), one, other }
    }

    pub fn server() -> Self {
        Self::on("server", Server::start())
    }

    /// One of each sort that this machine has.
    pub fn each() -> Vec<Self> {
        let mut arenas = vec![Self::memory(), Self::server()];
        if let Some(valkey) = ServerBinary::valkey(9) {
            arenas.push(Self::on("valkey", Server::builder().binary(valkey).start()));
        }
        arenas
    }

    /// One more manager.
    pub fn third(&self) -> Locks {
        match &self.server {
            Some(server) => Locks::open(server.url()).unwrap(),
            None => self.one.clone(),
        }
    }

    /// Nothing is left behind.
    #[track_caller]
    pub fn assert_clean(&self) {
        if let Some(server) = &self.server {
            server.assert_clean();
        }
    }
}

/// Whether the lock could be had now; it is given back at once.
#[track_caller]
pub fn is_free(request: Request) -> bool {
    match request.blocking_try_acquire() {
        Ok(Some(guard)) => {
            guard.blocking_release().unwrap();
            true
        }
        Ok(None) => false,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
pub fn take(request: Request) -> Guard {
    request.blocking_acquire().unwrap()
}

/// The error of an acquisition that must fail.
#[track_caller]
pub fn refused(request: Request) -> LockError {
    request.blocking_acquire().unwrap_err()
}
