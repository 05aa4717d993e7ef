//! What the cases share.

#[path = "../support/constants.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared with other groups of tests")]
mod constants;

pub(crate) use testbed::{LONG, PATIENCE};

pub(crate) use self::constants::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{LockRequest, Locks};
use testbed::{Server, ServerBinary, ServerBuilder, eventually, report_skipped};

/// Within this time a waiter has looked by itself, also on a busy machine.
pub(crate) const LOOKED: Duration = ms(2_500);

/// Locks of their own engine and connections: what another process would be.
pub(crate) fn manager(server: &Server) -> Locks {
    Locks::open(server.url()).expect("the URL is valid")
}

pub(crate) fn managers(server: &Server, count: usize) -> Vec<Locks> {
    (0..count).map(|_| manager(server)).collect()
}

/// A mutex on [`KEY`] that does not wait for ever, so that a stuck case fails with a sentence.
pub(crate) fn job(locks: &Locks) -> LockRequest {
    locks.mutex(KEY).ttl(LONG).wait(PATIENCE)
}

/// Waits until so many are in the queue of [`KEY`].
#[track_caller]
pub(crate) fn until_queued(server: &Server, count: u64) {
    let mut seen = 0;
    eventually(PATIENCE, &format!("{count} are in the queue"), || {
        seen = server.run(&format!("ZCARD {QUEUE}"));
        seen == count
    });
}

/// Waits until the places of the dead have ended, then sees to it that nothing else is left.
#[track_caller]
pub(crate) fn assert_clean_after_deaths(server: &Server) {
    let places = |key: &String| key.ends_with(":~q") || key.ends_with(":~w");
    eventually(PLACE + ms(3000), "the places of the dead end", || {
        !server.keys().iter().any(places)
    });
    server.assert_clean();
}

/// Something that only one may be in at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Arc<AtomicBool>);

impl Room {
    #[track_caller]
    pub(crate) fn enter(&self) {
        assert!(!self.0.swap(true, Ordering::SeqCst), "two are in at once");
    }

    pub(crate) fn leave(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Random numbers that can be repeated by their seed: xorshift.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A new seed each time, which is printed, so that the run can be repeated.
    pub(crate) fn fresh() -> Self {
        let since = std::time::UNIX_EPOCH.elapsed().expect("the clock is set");
        let seed = u64::from(since.subsec_nanos());
        eprintln!("seed {seed}");
        Self::seeded(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Does something at a steady rate, on a thread of its own, until dropped.
#[derive(Debug)]
pub(crate) struct Steadily {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Steadily {
    pub(crate) fn each(period: Duration, mut work: impl FnMut() + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let (start, mut done) = (Instant::now(), 0);
            while !over.load(Ordering::SeqCst) {
                work();
                done += 1;
                let next = start + period * u32::try_from(done).unwrap_or(u32::MAX);
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            done
        });
        Self { ended, thread: Some(thread) }
    }

    /// Ends it, and says how often it was done.
    pub(crate) fn stop(mut self) -> u64 {
        self.ended.store(true, Ordering::SeqCst);
        self.thread.take().map_or(0, |thread| thread.join().expect("the work does not fail"))
    }
}

impl Drop for Steadily {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A case that fails has said why already.
            let _ = thread.join();
        }
    }
}

/// Keeps other cases that need the whole machine from running at the same time.
pub(crate) async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// A server to be started that has a compare-and-delete of its own.
pub(crate) fn valkey() -> Option<ServerBuilder> {
    let Some(binary) = ServerBinary::valkey(9) else {
        report_skipped("needs Valkey 9");
        return None;
    };
    Some(Server::builder().binary(binary))
}

/// Makes two tests of each case: one on the server of this machine, one on Valkey 9.
macro_rules! on_both_servers {
    ($($case:ident),+ $(,)?) => {$(
        mod $case {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                super::$case(testbed::Server::builder()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn valkey() {
                if let Some(builder) = crate::support::valkey() {
                    super::$case(builder).await;
                }
            }
        }
    )+};
}
