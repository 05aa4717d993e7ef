use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::faults::{Faults, Flow, contains};

/// What is known of one connection through a proxy.
#[expect(clippy::struct_excessive_bools, reason = "facts that a test reads")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Connections are counted from 0.
    pub number: u64,
    /// Neither side has hung up, and it was not cut.
    pub open: bool,
    /// A `SUBSCRIBE` of any kind went through.
    pub subscriber: bool,
    /// A replica gets its data this way.
    pub replication: bool,
    /// Bytes of requests handed on.
    pub bytes_up: u64,
    /// Bytes of replies handed on.
    pub bytes_down: u64,
}

/// One connection through the proxy: two sockets, a thread for each direction.
#[derive(Debug)]
pub(super) struct Link {
    number: u64,
    /// `None` once it is closed: what is remembered of it must not keep them open.
    ends: Mutex<Option<Ends>>,
    faults: Mutex<Faults>,
    changed: Condvar,
    closed: AtomicBool,
    subscriber: AtomicBool,
    replication: AtomicBool,
    /// Faults don't concern it once it is known as a replica's.
    spares_replication: bool,
    /// The next reply is not to arrive: the connection is cut instead.
    cut_next_reply: AtomicBool,
    was_cut: AtomicBool,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

/// The sockets of a connection, which its threads share.
#[derive(Debug, Clone)]
struct Ends {
    client: Arc<TcpStream>,
    server: Arc<TcpStream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Link {
    pub(super) fn open(
        number: u64,
        client: TcpStream,
        upstream: SocketAddr,
        faults: Faults,
        spares_replication: bool,
    ) -> io::Result<Arc<Self>> {
        let server = TcpStream::connect(upstream)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ends = Ends { client: Arc::new(client), server: Arc::new(server) };
        let link = Arc::new(Self {
            number,
            ends: Mutex::new(Some(ends.clone())),
            faults: Mutex::new(faults),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            subscriber: AtomicBool::new(false),
            replication: AtomicBool::new(false),
            spares_replication,
            cut_next_reply: AtomicBool::new(false),
            was_cut: AtomicBool::new(false),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        });
        for direction in [Direction::Up, Direction::Down] {
            let (link, ends) = (Arc::clone(&link), ends.clone());
            thread::Builder::new()
                .name(format!("proxy-{number}"))
                .spawn(move || link.pump(direction, &ends))?;
        }
        Ok(link)
    }

    pub(super) fn describe(&self) -> Connection {
        Connection {
            number: self.number,
            open: self.is_open(),
            subscriber: self.subscriber.load(Ordering::SeqCst),
            replication: self.replication.load(Ordering::SeqCst),
            bytes_up: self.bytes_up.load(Ordering::SeqCst),
            bytes_down: self.bytes_down.load(Ordering::SeqCst),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn was_cut(&self) -> bool {
        self.was_cut.load(Ordering::SeqCst)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Faults)) {
        if self.is_spared() {
            return;
        }
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Whether faults pass it by.
    pub(super) fn is_spared(&self) -> bool {
        self.spares_replication && self.replication.load(Ordering::SeqCst)
    }

    /// Ends the connection on both sides.
    pub(super) fn cut(&self) {
        {
            let _guard = self.lock();
            self.closed.store(true, Ordering::SeqCst);
        }
        self.changed.notify_all();
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Ends { client, server }) = ends {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on what one side says until it hangs up, then passes that on too.
    fn pump(self: &Arc<Self>, direction: Direction, ends: &Ends) {
        let (from, to, bytes) = match direction {
            Direction::Up => (&ends.client, &ends.server, &self.bytes_up),
            Direction::Down => (&ends.server, &ends.client, &self.bytes_down),
        };
        let mut late: Option<Late> = None;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = match from.as_ref().read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let arrived = Instant::now();
            let mut data = &buffer[..read];
            let (delay, ends_here) = {
                let mut faults = self.lock();
                match direction {
                    Direction::Up => self.watch_request(data, &mut faults),
                    Direction::Down if self.cut_next_reply.swap(false, Ordering::SeqCst) => {
                        self.was_cut.store(true, Ordering::SeqCst);
                        drop(faults);
                        return self.cut();
                    }
                    Direction::Down => {}
                }
                let mut ends_here = false;
                if direction == Direction::Down
                    && let Some(left) = &mut faults.cut_after
                {
                    ends_here = data.len() >= *left;
                    data = &data[..data.len().min(*left)];
                    *left -= data.len();
                }
                (direction.flow(&faults).delay, ends_here)
            };
            // The order is kept: what comes after delayed data is delayed as well.
            if delay > Duration::ZERO || late.is_some() {
                let late = late.get_or_insert_with(|| Late::start(Arc::clone(self), direction, to));
                late.send(arrived + delay, data.to_vec());
            } else if self.deliver(direction, to, data).is_err() {
                break;
            }
            bytes.fetch_add(data.len() as u64, Ordering::SeqCst);
            if ends_here {
                if let Some(late) = late.take() {
                    late.finish();
                }
                return self.cut();
            }
        }
        if let Some(late) = late.take() {
            late.finish();
        }
        // A hole does not let the end of a connection through either.
        let _ = self.wait_out_hole(direction);
        let _ = to.shutdown(Shutdown::Write);
        if direction == Direction::Down {
            self.cut();
        }
    }

    fn watch_request(&self, data: &[u8], faults: &mut Faults) {
        if !self.replication.load(Ordering::Relaxed) && contains(data, b"REPLCONF") {
            self.replication.store(true, Ordering::SeqCst);
            if self.spares_replication {
                *faults = Faults::default();
            }
        }
        if !self.subscriber.load(Ordering::Relaxed) && contains(data, b"SUBSCRIBE") {
            self.subscriber.store(true, Ordering::SeqCst);
        }
        if faults.cut_reply.as_ref().is_some_and(|cut| cut.fires_at(data)) {
            self.cut_next_reply.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until no hole holds the data back, then writes them, in pieces if the proxy splits
    /// them.
    fn deliver(&self, direction: Direction, mut to: &TcpStream, data: &[u8]) -> io::Result<()> {
        let split = self.wait_out_hole(direction)?;
        match split {
            None => to.write_all(data),
            Some(size) => data.chunks(size).enumerate().try_for_each(|(number, piece)| {
                to.write_all(piece)?;
                // Long enough for the reader to be woken by this piece alone; but a long text shall
                // not take for ever.
                if number < 100 {
                    thread::sleep(Duration::from_micros(50));
                }
                Ok(())
            }),
        }
    }

    fn wait_out_hole(&self, direction: Direction) -> io::Result<Option<usize>> {
        let mut faults = self.lock();
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let flow = direction.flow(&faults);
            if !flow.hole {
                return Ok(flow.split);
            }
            faults = self.changed.wait(faults).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Direction {
    fn flow(self, faults: &Faults) -> &Flow {
        match self {
            Self::Up => &faults.up,
            Self::Down => &faults.down,
        }
    }
}

/// The thread that delivers what is delayed, each piece at its own time, in order.
#[derive(Debug)]
struct Late {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    thread: thread::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    finished: bool,
}

impl Late {
    fn start(link: Arc<Link>, direction: Direction, to: &Arc<TcpStream>) -> Self {
        let queue: Arc<(Mutex<Queue>, Condvar)> = Arc::default();
        let (theirs, to) = (Arc::clone(&queue), Arc::clone(to));
        let thread = thread::spawn(move || {
            while let Some((due, data)) = next(&theirs) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if link.deliver(direction, &to, &data).is_err() {
                    return;
                }
            }
        });
        Self { queue, thread }
    }

    fn send(&self, due: Instant, data: Vec<u8>) {
        lock(&self.queue.0).pieces.push_back((due, data));
        self.queue.1.notify_one();
    }

    /// Waits until all has been delivered.
    fn finish(self) {
        lock(&self.queue.0).finished = true;
        self.queue.1.notify_one();
        let _ = self.thread.join();
    }
}

fn next(queue: &(Mutex<Queue>, Condvar)) -> Option<(Instant, Vec<u8>)> {
    let mut waiting = lock(&queue.0);
    loop {
        if let Some(piece) = waiting.pieces.pop_front() {
            return Some(piece);
        }
        if waiting.finished {
            return None;
        }
        waiting = queue.1.wait(waiting).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
