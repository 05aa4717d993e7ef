//! Managers, keys and waiting for most fault tests.

#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

mod constants;

pub use testbed::{LONG, PATIENCE};

pub use self::constants::*;

use std::future::{Future, poll_fn};
use std::time::Duration;

use redis_locks::{Guard, LockError, LockRequest, Locks, LocksBuilder, LossReason, Scripting};
use testbed::Server;
use tokio::task::JoinHandle;

/// Within this time nothing may be left of a call that was given up: some round trips on a slow
/// path and a busy machine, and far less than the lease.
pub const SOON: Duration = Duration::from_secs(2);

/// A call that takes as long as this hangs.
pub const HANGS: Duration = Duration::from_secs(10);

/// How long one command may take in these tests.
pub const COMMAND: Duration = Duration::from_millis(500);

/// How long a test watches that nothing happens. What would happen takes some round trips, and on a
/// busy machine some tens of milliseconds.
pub const WATCHED: Duration = Duration::from_millis(300);

/// What a call may take beyond its own bound: one command timeout, and the machine being busy.
pub const GRACE: Duration = Duration::from_millis(1500);

/// Whether the server of these tests is older than this version.
pub fn is_before(major: u32, minor: u32) -> bool {
    testbed::ServerBinary::any().version() < (major, minor, 0)
}

/// Whether a server deletes a key that has some value by one command, which needs no transaction.
pub fn compares_by_itself(server: &Server) -> bool {
    server.run::<Vec<redis::Value>>("COMMAND INFO DELIFEQ") != [redis::Value::Nil]
}

/// By which way the commands of a test go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The engine's thread reads the answers.
    Usual,
    /// A task of the caller's own runtime reads them, as it does where a manager is busy.
    Short,
    /// Mutexes work by transactions instead of scripts.
    Transactions,
}

/// Commands after which a manager is busy enough for the short path, with some to spare.
const WARM: usize = 400;

tokio::task_local! {
    static PATH: Path;
}

/// Whether the test asks for the short path.
pub fn is_short() -> bool {
    PATH.try_with(|path| *path) == Ok(Path::Short)
}

/// Whether the test does without scripts.
pub fn is_without_scripts() -> bool {
    PATH.try_with(|path| *path) == Ok(Path::Transactions)
}

/// Locks that are connected, by the path that the test asks for.
pub async fn connect(url: &str) -> Locks {
    connect_with(url, COMMAND).await
}

/// The same with another time limit for commands.
pub async fn connect_with(url: &str, time_limit: Duration) -> Locks {
    let builder = builder(url).command_timeout(time_limit);
    let start = std::time::Instant::now();
    // The time limits of these tests are short, and a busy machine may take longer.
    let locks = loop {
        match builder.clone().connect().await {
            Ok(locks) => break locks,
            Err(error) => assert!(start.elapsed() < PATIENCE, "the server is there: {error}"),
        }
    };
    if is_short() {
        for _ in 0..WARM {
            let guard = locks.mutex("warm").acquire().await.expect("the server is well");
            let released = guard.release().await;
            assert!(!released.is_err_and(|error| error.is_lost()), "the server is well");
        }
    }
    locks
}

/// Runs a test by a path: the short one is for tasks of runtimes with several threads.
pub fn by(path: Path, threads: usize, test: impl Future<Output = ()> + Send + 'static) {
    use tokio::runtime::Builder;
    let runtime = match (path, threads) {
        (Path::Usual | Path::Transactions, 1) => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    };
    let runtime = runtime.expect("a runtime can be made");
    let outcome = match path {
        Path::Usual => return runtime.block_on(test),
        Path::Transactions => return runtime.block_on(PATH.scope(path, test)),
        Path::Short => runtime.block_on(async { tokio::spawn(PATH.scope(path, test)).await }),
    };
    if let Err(error) = outcome {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Runs a part of a test by a path, in a task that the test has started itself.
pub fn scoped<F: Future>(path: Path, part: F) -> impl Future<Output = F::Output> {
    PATH.scope(path, part)
}

/// Makes a test of each case by each of some ways.
#[allow(unused_macros, reason = "not every program of tests needs it")]
macro_rules! by_ways {
    ($ways:tt on $threads:literal threads: $($case:ident),+ $(,)?) => {$(
        mod $case {
            by_ways!(@case $ways $threads $case);
        }
    )+};
    (@case ($($way:ident),+) $threads:literal $case:ident) => {$(
        #[test]
        fn $way() {
            use crate::support::{by, ways};
            by(ways::$way, $threads, super::$case());
        }
    )+};
}

/// Makes two tests of each: one by the usual path, one by the short one.
#[allow(unused_macros, reason = "not every program of tests needs it")]
macro_rules! both_paths {
    (on $threads:literal threads: $($case:ident),+ $(,)?) => {
        by_ways!((usual, short) on $threads threads: $($case),+);
    };
    ($($case:ident),+ $(,)?) => {
        both_paths!(on 1 threads: $($case),+);
    };
}

/// Makes three tests of each: by both paths, and without scripts.
#[allow(unused_macros, reason = "not every program of tests needs it")]
macro_rules! each_way {
    (on $threads:literal threads: $($case:ident),+ $(,)?) => {
        by_ways!((usual, short, by_transactions) on $threads threads: $($case),+);
    };
    ($($case:ident),+ $(,)?) => {
        each_way!(on 1 threads: $($case),+);
    };
}

/// The ways by the names of the tests that go by them.
#[allow(non_upper_case_globals, reason = "named like the tests")]
pub mod ways {
    use super::Path;

    pub const usual: Path = Path::Usual;
    pub const short: Path = Path::Short;
    pub const by_transactions: Path = Path::Transactions;
}

/// What the test asks for.
pub fn scripting() -> Scripting {
    if is_without_scripts() { Scripting::Never } else { Scripting::Auto }
}

/// What most managers begin with.
pub fn builder(url: &str) -> LocksBuilder {
    Locks::builder().url(url).scripting(scripting())
}

/// Locks that connect when they are first needed.
pub fn open(url: &str) -> Locks {
    builder(url).command_timeout(COMMAND).open().expect("the URL is valid")
}

/// A mutex on [`KEY`] whose ttl hides nothing.
pub fn job(locks: &Locks) -> LockRequest {
    locks.mutex(KEY).ttl(LONG)
}

/// Another manager takes [`KEY`]: proof that it is free.
#[track_caller]
pub fn assert_free(server: &Server) {
    let other = Locks::open(server.url()).expect("the URL is valid");
    let guard = job(&other).wait(Duration::from_secs(5)).blocking_acquire().expect("it is free");
    guard.blocking_release().expect("it is ours");
}

#[track_caller]
pub fn assert_backend<T>(outcome: Result<T, LockError>, cause: &str) {
    match outcome {
        Err(error @ LockError::Backend { .. }) => {
            let text = full_text(&error);
            assert!(text.contains(cause), "{text:?} does not name {cause:?}");
        }
        Err(other) => panic!("not a backend failure: {other:?}"),
        Ok(_) => panic!("it did not fail"),
    }
}

/// The error and all its sources.
pub fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Waits for something without blocking the thread, which other tasks of the test may need.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "after {PATIENCE:?} still not so: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Waits until no command has named [`KEY`] for this long. What was given up is undone by several commands, and
/// where several were given up, the key is gone for moments before the last of these.
#[track_caller]
pub fn until_quiet(monitor: &testbed::Monitor, duration: Duration) {
    let (mut seen, mut since) = (0, std::time::Instant::now());
    testbed::eventually(PATIENCE, "no command names it any more", || {
        let count = monitor.count(WIRE);
        if count != seen {
            (seen, since) = (count, std::time::Instant::now());
        }
        since.elapsed() >= duration
    });
}

/// Watches, without blocking the thread, that something stays so for this long.
pub async fn stays(duration: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while start.elapsed() < duration {
        assert!(condition(), "after {:?} no longer so: {what}", start.elapsed());
        tokio::time::sleep(ms(5)).await;
    }
}

/// The shortest of up to three times that something takes.
///
/// A busy machine makes one turn slow; a message that is not sent makes all of them slow.
pub struct Fastest {
    limit: Duration,
    turns: usize,
    took: Duration,
}

impl Fastest {
    /// The first turn that takes less than this is enough.
    pub fn below(limit: Duration) -> Self {
        Self { limit, turns: 0, took: Duration::MAX }
    }

    /// Whether another turn is needed.
    pub fn needs_turn(&self) -> bool {
        self.turns < 3 && self.took >= self.limit
    }

    /// A turn took this long.
    pub fn add(&mut self, took: Duration) {
        (self.turns, self.took) = (self.turns + 1, self.took.min(took));
    }

    /// How long the shortest one took.
    pub fn took(&self) -> Duration {
        self.took
    }
}

/// Starts a task and returns when it was polled once: a request has joined the waiters of this
/// process then.
pub async fn started<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (polled, is_polled) = tokio::sync::oneshot::channel();
    let (mut polled, mut future) = (Some(polled), Box::pin(future));
    let task = tokio::spawn(poll_fn(move |context| {
        let poll = future.as_mut().poll(context);
        if let Some(polled) = polled.take() {
            let _ = polled.send(());
        }
        poll
    }));
    is_polled.await.expect("the task is polled");
    task
}

/// Waits until a waiter is in the queue of [`KEY`].
pub async fn until_queued(server: &Server) {
    until("a waiter is queued", || server.exists(QUEUE)).await;
}

/// Waits until a lease that is renewed by itself has been renewed.
pub async fn until_renewed(guard: &Guard) {
    let end = || {
        let left = guard.remaining();
        assert!(!left.is_zero(), "the lease has ended and was not renewed");
        std::time::Instant::now() + left
    };
    // What lies between two readings of the clock is no renewal.
    let first = end() + ms(50);
    until("the lease is renewed", || end() > first).await;
}

/// How many channels have a subscriber.
pub fn channels(server: &Server) -> usize {
    server.run::<Vec<String>>("PUBSUB CHANNELS *").len()
}

/// Waits for the loss, but not for ever.
pub async fn loss(guard: &Guard) -> LossReason {
    tokio::time::timeout(PATIENCE, guard.lost()).await.expect("the loss is reported")
}
