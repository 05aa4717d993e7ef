//! Threads that use every kind of lock, until they are asked to end.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use redis_locks::{LockError, LockRequest, Locks};
use testbed::{Cluster, Node};

use super::book::Book;

const MANAGERS: usize = 2;
const PERMITS: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(25);

pub(super) struct Load {
    pub(super) books: Vec<Arc<Book>>,
    over: Arc<AtomicBool>,
    failure: Arc<Mutex<Option<String>>>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Two workers for each kind of lock, of different managers; so that one always waits.
    pub(super) fn start(cluster: &Cluster) -> Result<Self> {
        let primaries = cluster.primaries();
        let at = |number: usize, kind| {
            let node: &Node = primaries[number % primaries.len()];
            cluster.name_at(node, kind, wire)
        };
        let one = |number, kind| vec![at(number, kind)];
        let all = (0..primaries.len()).map(|number| at(number, "all")).collect();
        let kinds = [
            ("mutex", one(0, "mutex"), 1),
            ("fenced", one(1, "fenced"), 1),
            ("read", one(2, "read"), 2),
            ("write", one(0, "write"), 1),
            ("permit", one(1, "permit"), u64::from(PERMITS)),
            ("all", all, 1),
        ];
        let books = kinds.map(|(kind, keys, room)| Arc::new(Book::new(kind, keys, room))).to_vec();
        let mut load =
            Self { books, over: Arc::default(), failure: Arc::default(), workers: vec![] };
        for _ in 0..MANAGERS {
            let locks = Locks::builder().cluster(cluster.urls()).outage(PATIENCE).open()?;
            for book in load.books.clone() {
                load.begin(locks.clone(), book);
            }
        }
        Ok(load)
    }

    fn begin(&mut self, locks: Locks, book: Arc<Book>) {
        let (over, failure) = (Arc::clone(&self.over), Arc::clone(&self.failure));
        self.workers.push(thread::spawn(move || {
            while !over.load(SeqCst) {
                if let Err(error) = turn(&locks, &book) {
                    let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert(format!("{}: {error}", book.kind));
                    return;
                }
            }
        }));
    }

    /// An error when a worker has given up.
    pub(super) fn check(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map_or(Ok(()), |failure| bail!("{failure}"))
    }

    pub(super) fn count(&self) -> usize {
        self.books.iter().map(|book| book.count()).sum()
    }

    pub(super) fn losses(&self) -> u64 {
        self.books.iter().map(|book| book.losses.load(SeqCst)).sum()
    }

    pub(super) fn overlaps(&self) -> u64 {
        self.books.iter().map(|book| book.overlaps.load(SeqCst)).sum()
    }

    pub(super) fn end(self) -> Result<()> {
        self.over.store(true, SeqCst);
        self.check()?;
        for worker in self.workers {
            if worker.join().is_err() {
                bail!("a worker panicked");
            }
        }
        Ok(())
    }
}

/// The key of a lock, as the servers know it.
pub(super) fn wire(name: &str) -> String {
    format!("lock:{name}")
}

fn request(locks: &Locks, book: &Book) -> LockRequest {
    let key = &*book.keys[0];
    match book.kind {
        "fenced" => locks.mutex(key).fenced(),
        "read" => locks.read(key),
        "write" => locks.write(key),
        "permit" => locks.permit(key, PERMITS),
        "all" => locks.all(book.keys.iter().map(|key| &**key)),
        _ => locks.mutex(key),
    }
}

fn turn(locks: &Locks, book: &Book) -> Result<(), LockError> {
    let asked = Instant::now();
    let guard = request(locks, book).wait(PATIENCE).blocking_acquire()?;
    book.enter(asked);
    thread::sleep(Duration::from_millis(2));
    book.leave();
    match guard.blocking_release() {
        // A release that is not confirmed in time goes on in the background.
        Ok(()) | Err(LockError::Backend { .. }) => Ok(()),
        Err(LockError::Lost { .. }) => {
            book.losses.fetch_add(1, SeqCst);
            Ok(())
        }
        Err(error) => Err(error),
    }
}
