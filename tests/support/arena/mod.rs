//! Two managers, as two processes would have them, on one arbiter: memory, a server of either
//! family, or several nodes.

#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../constants.rs"]
#[allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "it is shared with other groups of tests"
)]
mod constants;
pub(crate) mod log;
mod several;

pub(crate) use testbed::PATIENCE;

pub(crate) use self::constants::*;

use redis_locks::{BackendErrorKind, Guard, LockError, LockRequest, Locks, Scripting};
use testbed::{Cluster, Sentinel, Server, ServerBinary};

use several::Several;

/// An arbiter and two managers that know nothing of each other.
pub(crate) struct Arena {
    pub(crate) name: &'static str,
    /// None for memory, and for several nodes.
    pub(crate) server: Option<Server>,
    several: Option<Several>,
    pub(crate) one: Locks,
    pub(crate) other: Locks,
}

impl Arena {
    pub(crate) fn memory() -> Self {
        let one = Locks::in_memory();
        Self { name: "memory", server: None, several: None, other: one.clone(), one }
    }

    pub(crate) fn on(name: &'static str, server: Server) -> Self {
        let one = Locks::open(server.url()).unwrap();
        let other = Locks::open(server.url()).unwrap();
        Self { name, server: Some(server), several: None, one, other }
    }

    fn of_several(name: &'static str, several: Several) -> Self {
        let (one, other) = (several.open(), several.open());
        Self { name, server: None, several: Some(several), one, other }
    }

    /// A server on which mutexes work by transactions.
    pub(crate) fn without_scripts() -> Self {
        let server = Server::start();
        let open =
            || Locks::builder().url(server.url()).scripting(Scripting::Never).open().unwrap();
        let (one, other) = (open(), open());
        Self { name: "transactions", server: Some(server), several: None, one, other }
    }

    pub(crate) fn server() -> Self {
        Self::on("server", Server::start())
    }

    pub(crate) fn valkey() -> Option<Self> {
        let start = |binary| Self::on("valkey", Server::builder().binary(binary).start());
        ServerBinary::valkey(9).map(start)
    }

    pub(crate) fn redis_6() -> Option<Self> {
        let start = |binary| Self::on("redis 6", Server::builder().binary(binary).start());
        ServerBinary::redis_6().map(start)
    }

    pub(crate) fn cluster() -> Self {
        Self::of_several("cluster of 3 + 3", Several::Cluster(Cluster::start()))
    }

    pub(crate) fn valkey_cluster() -> Option<Self> {
        let start = |binary| Cluster::builder().binary(binary).start();
        let cluster = ServerBinary::valkey(9).map(start)?;
        Some(Self::of_several("valkey cluster of 3 + 3", Several::Cluster(cluster)))
    }

    pub(crate) fn sentinels() -> Self {
        Self::of_several("sentinels", Several::Sentinel(Sentinel::start()))
    }

    /// One of each sort that this machine has. Several nodes take seconds to start: they are among
    /// them in a lane of its own, with `TESTBED_PLACES` in the environment.
    pub(crate) fn each() -> Vec<Self> {
        let mut arenas = vec![Self::memory(), Self::server()];
        arenas.extend(Self::valkey());
        arenas.extend(Self::redis_6());
        if std::env::var_os("TESTBED_PLACES").is_some() {
            arenas.extend([Self::cluster(), Self::sentinels()]);
            arenas.extend(Self::valkey_cluster());
            arenas.extend(Self::clusters());
        }
        arenas
    }

    /// Servers in cluster mode, which execute scripts over keys of one slot only.
    pub(crate) fn clusters() -> Vec<Self> {
        let mut arenas = vec![Self::on("cluster", Server::builder().cluster().start())];
        if let Some(valkey) = ServerBinary::valkey(9) {
            let server = Server::builder().binary(valkey).cluster().start();
            arenas.push(Self::on("valkey cluster", server));
        }
        arenas
    }

    /// One more manager.
    pub(crate) fn third(&self) -> Locks {
        match (&self.server, &self.several) {
            (Some(server), _) => Locks::open(server.url()).unwrap(),
            (None, Some(several)) => several.open(),
            (None, None) => self.one.clone(),
        }
    }

    /// Nothing is left behind.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        if let Some(server) = &self.server {
            server.assert_clean();
        }
        if let Some(several) = &self.several {
            several.assert_clean();
        }
    }
}

/// Whether the lock can be acquired now; it is released at once.
#[track_caller]
pub(crate) fn is_free(request: LockRequest) -> bool {
    match request.blocking_try_acquire() {
        Ok(Some(guard)) => {
            guard.blocking_release().unwrap();
            true
        }
        Ok(None) => false,
        // A lock of another kind is still being removed from the key.
        Err(LockError::Backend { source, .. }) if source.kind() == BackendErrorKind::OtherKind => {
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
pub(crate) fn take(request: LockRequest) -> Guard {
    request.blocking_acquire().unwrap()
}

/// The error of an acquisition that must fail.
#[track_caller]
pub(crate) fn refused(request: LockRequest) -> LockError {
    request.blocking_acquire().unwrap_err()
}

/// Every way to give up an acquisition, and what must hold afterwards: nobody has the lock, nobody
/// waits for it, and the next one gets it at once.
pub(crate) async fn cancel_everywhere(arena: &Arena, make: impl Fn(&Locks) -> LockRequest) {
    for busy in [false, true] {
        let mut polls = 0;
        loop {
            let holder =
                if busy { Some(make(&arena.other).acquire().await.unwrap()) } else { None };
            let waits = make(&arena.one).wait(ms(300));
            let late = testbed::cancel_at(polls, waits.acquire()).await;
            let waits = make(&arena.one).wait(ms(300));
            let flying = testbed::cancel_in_flight(polls, waits.acquire()).await;
            let ended = late.is_some() && flying.is_some();
            drop((late, flying));
            if let Some(holder) = holder {
                holder.release().await.unwrap();
            }
            // The lease is 30 s: an orphan would be seen.
            let next = make(&arena.other).wait(ms(3_000)).acquire().await;
            next.expect("nothing is left of what was cancelled").release().await.unwrap();
            if ended {
                break;
            }
            polls += 1;
            assert!(polls < 20, "an acquisition is polled a few times only");
        }
    }
    arena.assert_clean();
}

/// Lets the holder die: nothing renews it any more, and nothing releases it.
pub(crate) fn crash(guard: Guard) {
    std::mem::forget(guard);
}

/// Waits in a thread and tells when it has the lock; gives it back when `leave` is dropped.
pub(crate) struct Waiting {
    pub(crate) has_it: std::sync::mpsc::Receiver<()>,
    leave: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Waiting {
    pub(crate) fn start(request: LockRequest) -> Self {
        let (announce, has_it) = std::sync::mpsc::channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let guard = take(request.wait(PATIENCE));
            // The parent may not listen any more.
            let _ = announce.send(());
            let _ = left.recv();
            guard.blocking_release().unwrap();
        });
        Self { has_it, leave: Some(leave), thread: Some(thread) }
    }

    #[track_caller]
    pub(crate) fn must_have_it(&self) {
        self.has_it.recv_timeout(PATIENCE).expect("it comes to its turn");
    }

    #[track_caller]
    pub(crate) fn must_wait(&self) {
        assert!(self.has_it.recv_timeout(ms(150)).is_err(), "it should still wait");
    }

    pub(crate) fn finish(mut self) {
        drop(self.leave.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Lets each come to its turn, in whatever order.
#[track_caller]
pub(crate) fn finish_all(mut waiting: Vec<Waiting>) {
    while !waiting.is_empty() {
        let mut next = None;
        testbed::eventually(PATIENCE, "a waiter comes to its turn", || {
            next = waiting.iter().position(|waiting| waiting.has_it.try_recv().is_ok());
            next.is_some()
        });
        waiting.remove(next.unwrap()).finish();
    }
}

/// How many wait in the queue of a key.
pub(crate) fn queued(arena: &Arena, key: &str) -> usize {
    arena.one.blocking_status(key).unwrap().waiters.len()
}
