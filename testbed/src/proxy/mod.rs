mod connection;
mod faults;
mod listener;

pub use connection::Connection;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::port::Port;
use connection::Link;
use faults::{CutReply, Faults};
use listener::ListenMode;

/// A TCP proxy on loopback whose faults are switched while it runs.
///
/// Without faults it hands on what it reads, one thread per direction. A fault set on the proxy
/// concerns the connections that are open *and* those to come; [`existing`](Self::existing) and
/// [`only`](Self::only) choose among the open ones.
///
/// A hole holds data back the way a network does: sockets stay open and neither side learns of it. What was
/// sent meanwhile arrives when the hole closes, even if its sender has long hung up.
///
/// ```no_run
/// use std::time::Duration;
/// let server = testbed::Server::start();
/// let proxy = testbed::Proxy::to(server.port());
/// // … locks on proxy.url() …
/// proxy.delay_up(Duration::from_millis(20));
/// proxy.existing().hole();
/// proxy.pass();
/// ```
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the mode of the listener changes, or has changed.
    changed: Condvar,
    accepted: AtomicU64,
    spares_replication: AtomicBool,
    ended: AtomicBool,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    mode: ListenMode,
    /// What the listener's thread has made of `mode`.
    in_force: ListenMode,
    /// What a new connection starts with.
    faults: Faults,
    /// Those that are open, and what is remembered of others.
    links: Vec<Arc<Link>>,
    /// How many of the connections that are no longer remembered were cut in place of a reply.
    forgotten_cuts: usize,
}

/// How many connections are remembered, if not more of them are open.
const REMEMBERED: usize = 1_000;

impl State {
    /// Of thousands of connections, those that are closed are forgotten.
    fn add(&mut self, link: Arc<Link>) {
        if self.links.len() >= REMEMBERED {
            self.forgotten_cuts += self.cut_links().filter(|link| !link.is_open()).count();
            self.links.retain(|link| link.is_open());
        }
        self.links.push(link);
    }

    fn cut_links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.iter().filter(|link| link.was_cut())
    }
}

impl Proxy {
    /// A proxy to a port on loopback.
    pub fn to(port: u16) -> Self {
        Self::to_address(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// A proxy to any address.
    pub fn to_address(upstream: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                upstream,
                mode: ListenMode::Pass,
                in_force: ListenMode::Pass,
                faults: Faults::default(),
                links: Vec::new(),
                forgotten_cuts: 0,
            }),
            changed: Condvar::new(),
            accepted: AtomicU64::new(0),
            spares_replication: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let port = (0..100)
            .find_map(|_| {
                let port = Port::free();
                listener::start(port.number(), Arc::clone(&shared)).ok().map(|()| port)
            })
            .expect("a proxy can listen on a free port");
        Self { port, shared }
    }

    /// From now on faults pass by the connections that replicas have opened: only clients are
    /// disturbed. Concerns connections to come.
    pub fn spare_replication(&self) {
        self.shared.spares_replication.store(true, Ordering::SeqCst);
    }

    /// `redis://127.0.0.1:{port}`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Ends every fault; what was held back arrives.
    pub fn pass(&self) {
        self.listen(ListenMode::Pass);
        self.change(|faults| *faults = Faults::default());
    }

    /// Requests arrive this much later.
    pub fn delay_up(&self, delay: Duration) {
        self.change(|faults| faults.up.delay = delay);
    }

    /// Replies arrive this much later.
    pub fn delay_down(&self, delay: Duration) {
        self.change(|faults| faults.down.delay = delay);
    }

    /// Requests no longer arrive.
    pub fn hole_up(&self) {
        self.change(|faults| faults.up.hole = true);
    }

    /// Replies no longer arrive.
    pub fn hole_down(&self) {
        self.change(|faults| faults.down.hole = true);
    }

    /// Nothing arrives any more, in neither direction.
    pub fn hole(&self) {
        self.hole_up();
        self.hole_down();
    }

    /// The next request is executed, and its connection cut before the reply arrives.
    pub fn cut_reply_once(&self) {
        self.cut_reply_to("");
    }

    /// Like [`cut_reply_once`](Self::cut_reply_once), for the next request that contains `text`.
    pub fn cut_reply_to(&self, text: &str) {
        let cut = CutReply::to(text);
        self.change(|faults| faults.cut_reply = Some(Arc::clone(&cut)));
    }

    /// How many of the cuts asked for by [`cut_reply_to`](Self::cut_reply_to) have happened.
    pub fn cuts(&self) -> usize {
        let state = self.lock();
        state.forgotten_cuts + state.cut_links().count()
    }

    /// Each connection is cut after this many more bytes of replies.
    pub fn cut_after(&self, bytes: usize) {
        self.change(|faults| faults.cut_after = Some(bytes));
    }

    /// Data arrive in pieces of this many bytes, each in a packet of its own.
    pub fn split(&self, bytes: usize) {
        assert!(bytes > 0, "a piece has at least one byte");
        self.change(|faults| {
            faults.up.split = Some(bytes);
            faults.down.split = Some(bytes);
        });
    }

    /// New connections are refused; open ones stay.
    pub fn refuse(&self) {
        self.listen(ListenMode::Refuse);
    }

    /// New connections are accepted, and never answered; open ones stay.
    pub fn accept_and_ignore(&self) {
        self.listen(ListenMode::Ignore);
    }

    /// New connections lead to another port on loopback; open ones stay.
    pub fn redirect(&self, port: u16) {
        self.lock().upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    }

    /// The connections open now: faults set on them spare those to come.
    pub fn existing(&self) -> Selection {
        self.only(|_| true)
    }

    /// Those of the open connections for which `wanted` holds.
    pub fn only(&self, mut wanted: impl FnMut(&Connection) -> bool) -> Selection {
        let open = self.lock().links.iter().filter(|link| link.is_open()).cloned().collect();
        let mut links: Vec<Arc<Link>> = open;
        links.retain(|link| wanted(&link.describe()));
        Selection { links }
    }

    /// How many connections have been accepted since the start.
    pub fn count(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Every connection so far, the oldest first; where there were more than a thousand, not those
    /// that were closed long ago.
    pub fn connections(&self) -> Vec<Connection> {
        self.lock().links.iter().map(|link| link.describe()).collect()
    }

    /// Cuts every open connection, but those that are spared.
    pub fn kill_all(&self) {
        self.existing().kill();
    }

    fn change(&self, mut change: impl FnMut(&mut Faults)) {
        let mut state = self.lock();
        change(&mut state.faults);
        for link in &state.links {
            link.change(&mut change);
        }
    }

    /// Sets the listener's mode, and returns when it is in force.
    fn listen(&self, mode: ListenMode) {
        let mut state = self.lock();
        if state.mode == mode {
            return;
        }
        state.mode = mode;
        self.shared.changed.notify_all();
        listener::wake(self.port.number());
        while state.in_force != mode {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for link in &self.lock().links {
            link.cut();
        }
        self.shared.changed.notify_all();
        listener::wake(self.port.number());
    }
}

/// Some of a proxy's open connections, to be disturbed while the others are spared.
#[derive(Debug)]
pub struct Selection {
    links: Vec<Arc<Link>>,
}

impl Selection {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.links.len()
    }

    /// Requests arrive this much later.
    pub fn delay_up(&self, delay: Duration) {
        self.change(|faults| faults.up.delay = delay);
    }

    /// Replies arrive this much later.
    pub fn delay_down(&self, delay: Duration) {
        self.change(|faults| faults.down.delay = delay);
    }

    /// Requests no longer arrive.
    pub fn hole_up(&self) {
        self.change(|faults| faults.up.hole = true);
    }

    /// Replies no longer arrive.
    pub fn hole_down(&self) {
        self.change(|faults| faults.down.hole = true);
    }

    /// Nothing arrives any more, in neither direction.
    pub fn hole(&self) {
        self.hole_up();
        self.hole_down();
    }

    /// Ends the faults of these connections; what was held back arrives.
    pub fn pass(&self) {
        self.change(|faults| *faults = Faults::default());
    }

    /// Each is cut after this many more bytes of replies.
    pub fn cut_after(&self, bytes: usize) {
        self.change(|faults| faults.cut_after = Some(bytes));
    }

    /// Cuts them.
    pub fn kill(&self) {
        for link in self.links.iter().filter(|link| !link.is_spared()) {
            link.cut();
        }
    }

    fn change(&self, mut change: impl FnMut(&mut Faults)) {
        for link in &self.links {
            link.change(&mut change);
        }
    }
}
