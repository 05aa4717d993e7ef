//! Wakers and subscribers are the user's code: one that blocks, panics or calls the library keeps
//! no answer from others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use redis_locks::{Guard, LockError, LockState, Locks};
#[cfg(feature = "tracing")]
use testbed::in_own_process;
use testbed::{Server, eventually};
use tokio::runtime::Runtime;

#[cfg(feature = "tracing")]
use crate::subscriber;
use crate::support::*;
use crate::trouble::{OpensAtEnd, Trouble, within};

const TTL: Duration = ms(900);

/// Of a lock that has to be kept: a busy machine may be late by two thirds of it.
const KEPT: Duration = ms(3_000);

struct Troubled {
    trouble: Trouble,
    called: AtomicBool,
    returned: AtomicBool,
}

impl Troubled {
    fn new(trouble: Trouble) -> Arc<Self> {
        Arc::new(Self { trouble, called: AtomicBool::new(false), returned: AtomicBool::new(false) })
    }
}

impl Wake for Troubled {
    fn wake(self: Arc<Self>) {
        self.called.store(true, Ordering::SeqCst);
        match &self.trouble {
            Trouble::Blocks(gate) => gate.pass(),
            Trouble::Panics => panic!("a waker panics, as planned"),
            Trouble::Asks(guard) => {
                let _ = (guard.state(), guard.remaining(), guard.is_held());
            }
        }
        self.returned.store(true, Ordering::SeqCst);
    }
}

/// A future that was polled once, with a waker of its own.
struct Polled<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    waker: Arc<Troubled>,
}

impl<T> Polled<T> {
    fn once(future: impl Future<Output = T> + Send + 'static, trouble: Trouble) -> Self {
        let mut future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
        let waker = Troubled::new(trouble);
        let polled =
            future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker))));
        assert!(polled.is_pending());
        Self { future, waker }
    }

    fn until_called(&self) {
        eventually(PATIENCE, "the waker is called", || self.waker.called.load(Ordering::SeqCst));
    }

    fn until_returned(&self) {
        eventually(PATIENCE, "the waker returns", || self.waker.returned.load(Ordering::SeqCst));
    }

    /// The output of the future, which is ready when the waker has been called.
    fn outcome(mut self) -> T {
        self.until_called();
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it was woken for nothing"),
        }
    }
}

fn waiter(locks: &Locks, key: &str, trouble: Trouble) -> Polled<Result<Guard, LockError>> {
    Polled::once(locks.mutex(key).ttl(TTL).wait_forever().acquire(), trouble)
}

/// Locks whose answers are read by the engine, or by a task of a runtime.
struct Scene {
    gate: OpensAtEnd,
    server: Server,
    locks: Locks,
    others: Locks,
    runtime: Option<Runtime>,
}

impl Scene {
    fn by(path: Path) -> Self {
        let server = Server::start();
        let others = open(&server.url());
        let (runtime, locks) = match path {
            Path::Usual | Path::Transactions => (None, open(&server.url())),
            Path::Short => {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap();
                let url = server.url();
                let connecting = scoped(path, async move { connect(&url).await });
                let locks = runtime.block_on(async { tokio::spawn(connecting).await }).unwrap();
                (Some(runtime), locks)
            }
        };
        Self { gate: OpensAtEnd(Arc::default()), server, locks, others, runtime }
    }

    fn blocks(&self) -> Trouble {
        Trouble::Blocks(Arc::clone(&self.gate.0))
    }

    /// Another manager holds these, and releases them later.
    fn taken(&self, keys: &[&str]) -> Vec<Guard> {
        let take = |key: &&str| self.others.mutex(*key).ttl(LONG).blocking_acquire().unwrap();
        keys.iter().map(take).collect()
    }

    /// Releases what the others have as soon as all are queued who wait for it, and has their wakers
    /// called.
    fn hand_over<T>(&self, theirs: Vec<Guard>, waiting: &[Polled<T>]) {
        let queue = |guard: &Guard| format!("lock:{{lock:{}}}:~q", guard.key());
        let queues: Vec<_> = theirs.iter().map(queue).collect();
        eventually(PATIENCE, "all are queued", || queues.iter().all(|it| self.server.exists(it)));
        for guard in theirs {
            guard.blocking_release().unwrap();
        }
        waiting.iter().for_each(Polled::until_called);
    }

    /// The other locks of the same manager are granted, renewed, handed over and released.
    fn assert_others_go_on(&self) {
        let locks = self.locks.clone();
        let kept = within("an acquisition", move || {
            locks.mutex("kept").ttl(KEPT).blocking_acquire().unwrap()
        });
        for round in 0..20 {
            let locks = self.locks.clone();
            within("a pair", move || {
                let guard = locks.mutex(format!("other{round}")).blocking_acquire().unwrap();
                guard.blocking_verify().unwrap();
                guard.blocking_release().unwrap();
            });
        }
        let theirs = self.others.mutex("waited").ttl(LONG).blocking_acquire().unwrap();
        let locks = self.locks.clone();
        let waiting =
            thread::spawn(move || locks.mutex("waited").wait(PATIENCE).blocking_acquire());
        eventually(PATIENCE, "it is queued", || self.server.exists("lock:{lock:waited}:~q"));
        theirs.blocking_release().unwrap();
        within("a hand-over", move || waiting.join().unwrap().unwrap().blocking_release().unwrap());
        let mut least = KEPT;
        eventually(PATIENCE, "the other lock is renewed", || {
            let left = kept.remaining();
            least = least.min(left);
            left > least + ms(200)
        });
        within("a release", move || kept.blocking_release().unwrap());
    }

    fn end(self) {
        self.gate.0.open();
        self.locks.blocking_shutdown();
        self.others.blocking_shutdown();
        if let Some(runtime) = self.runtime {
            runtime.shutdown_timeout(PATIENCE);
        }
        self.server.assert_clean();
    }
}

fn wakers_that_block(path: Path) {
    let scene = Scene::by(path);
    let keys = ["a", "b", "c"];
    let theirs = scene.taken(&keys);
    let waiting = keys.map(|key| waiter(&scene.locks, key, scene.blocks()));
    scene.hand_over(theirs, &waiting);
    scene.assert_others_go_on();
    for waiting in waiting {
        assert!(!waiting.waker.returned.load(Ordering::SeqCst), "it blocks all the time");
        let guard = waiting.outcome().unwrap();
        within("a release", move || guard.blocking_release().unwrap());
    }
    scene.end();
}

fn wakers_that_panic(path: Path) {
    let scene = Scene::by(path);
    // More than there may be threads to tell people.
    let keys: Vec<_> = (0..80).map(|number| format!("key{number}")).collect();
    let theirs = scene.taken(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let wait = |key: &String| waiter(&scene.locks, key, Trouble::Panics);
    let waiting: Vec<_> = keys.iter().map(wait).collect();
    scene.hand_over(theirs, &waiting);
    scene.assert_others_go_on();
    for waiting in waiting {
        waiting.outcome().unwrap().blocking_release().unwrap();
    }
    scene.end();
}

fn wakers_that_ask_a_guard(path: Path) {
    let scene = Scene::by(path);
    let guard = scene.locks.mutex("asked").ttl(TTL).blocking_acquire().unwrap();
    let guard = Arc::new(guard);
    let theirs = scene.taken(&["a"]);
    let waiting = waiter(&scene.locks, "a", Trouble::Asks(Arc::clone(&guard)));
    let lost = Polled::once(
        {
            let guard = Arc::clone(&guard);
            async move { guard.lost().await }
        },
        Trouble::Asks(Arc::clone(&guard)),
    );
    eventually(PATIENCE, "it is queued", || scene.server.exists("lock:{lock:a}:~q"));
    theirs.into_iter().for_each(|guard| guard.blocking_release().unwrap());
    waiting.until_returned();
    assert!(scene.others.blocking_force_release("asked", "for the test").unwrap());
    lost.until_returned();
    assert_eq!(guard.state(), LockState::Lost);
    scene.assert_others_go_on();
    waiting.outcome().unwrap().blocking_release().unwrap();
    drop((lost, guard));
    scene.end();
}

fn wakers_that_block_at_a_loss(path: Path) {
    let scene = Scene::by(path);
    let lost = ["a", "b"].map(|key| {
        let guard = scene.locks.mutex(key).ttl(TTL).blocking_acquire().unwrap();
        Polled::once(async move { guard.lost().await }, scene.blocks())
    });
    for key in ["a", "b"] {
        assert!(scene.others.blocking_force_release(key, "for the test").unwrap());
    }
    lost.iter().for_each(Polled::until_called);
    scene.assert_others_go_on();
    for lost in lost {
        drop(lost.outcome());
    }
    scene.end();
}

/// Those who wait for the same loss, drain or shutdown.
fn wakers_that_block_at_the_same_news(path: Path) {
    let scene = Scene::by(path);
    let take = |key| Arc::new(scene.locks.mutex(key).ttl(LONG).blocking_acquire().unwrap());
    let (forced, held) = (take("forced"), take("held"));
    let losses = |guard: &Arc<Guard>| {
        [(); 3].map(|()| {
            let guard = Arc::clone(guard);
            Polled::once(async move { guard.lost().await }, scene.blocks())
        })
    };
    let lost = losses(&forced);
    assert!(scene.others.blocking_force_release("forced", "for the test").unwrap());
    lost.iter().for_each(Polled::until_called);
    let queued = [(); 2].map(|()| waiter(&scene.locks, "held", scene.blocks()));
    let lost = losses(&held);
    let draining = [(); 2].map(|()| {
        let locks = scene.locks.clone();
        Polled::once(async move { locks.draining().await }, scene.blocks())
    });
    // A release that is not answered puts the end off.
    scene.server.freeze();
    let ending = [(); 2].map(|()| {
        let (locks, blocks) = (scene.locks.clone(), scene.blocks());
        within("the beginning of a shutdown", || {
            Polled::once(async move { locks.shutdown().await }, blocks)
        })
    });
    queued.iter().for_each(Polled::until_called);
    lost.iter().for_each(Polled::until_called);
    [draining, ending].iter().flatten().for_each(Polled::until_called);
    scene.server.thaw();
    let locks = scene.locks.clone();
    within("the shutdown", move || locks.blocking_shutdown());
    scene.end();
}

/// The next waiter of the same process is woken by the release.
fn wakers_that_block_a_release_of_our_own(path: Path) {
    let scene = Scene::by(path);
    let writer = scene.locks.write("a").ttl(TTL).blocking_acquire().unwrap();
    let first =
        Polled::once(scene.locks.read("a").ttl(TTL).wait_forever().acquire(), scene.blocks());
    let locks = scene.locks.clone();
    let second = thread::spawn(move || locks.read("a").ttl(TTL).wait(PATIENCE).blocking_acquire());
    let mutex = scene.locks.mutex("b").ttl(TTL).blocking_acquire().unwrap();
    let next = waiter(&scene.locks, "b", scene.blocks());
    let releasing = thread::spawn(move || {
        mutex.blocking_release().unwrap();
    });
    next.until_called();
    thread::spawn(move || writer.blocking_release().unwrap()).join().unwrap();
    first.until_called();
    within("the second reader", move || {
        second.join().unwrap().unwrap().blocking_release().unwrap()
    });
    scene.assert_others_go_on();
    scene.gate.0.open();
    within("the release", move || releasing.join().unwrap());
    for waiting in [first, next] {
        waiting.outcome().unwrap().blocking_release().unwrap();
    }
    scene.end();
}

fn wakers_that_block_while_the_engine_ends(path: Path) {
    let scene = Scene::by(path);
    let take = |key| scene.locks.mutex(key).ttl(LONG).blocking_acquire().unwrap();
    let guards = ["a", "b", "c"].map(take);
    scene.server.freeze();
    let releases = guards.map(|guard| Polled::once(guard.release(), scene.blocks()));
    let locks = scene.locks.clone();
    let ending = thread::spawn(move || locks.blocking_shutdown());
    eventually(PATIENCE, "the shutdown has begun", || {
        let mut asking = Box::pin(scene.locks.mutex("more").acquire());
        let asked = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(asked, Poll::Ready(Err(LockError::Shutdown)))
    });
    scene.server.thaw();
    releases.iter().for_each(Polled::until_called);
    within("the shutdown", move || ending.join().unwrap());
    scene.end();
}

#[cfg(feature = "tracing")]
fn subscribers_that_block_and_panic(path: Path) {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let scene = Scene::by(path);
    let names = ["blocks", "panics"].map(|what| format!("{what} {path:?}"));
    let mut guards = Vec::new();
    for key in &names {
        guards.push(scene.locks.mutex(key.as_str()).ttl(TTL).blocking_acquire().unwrap());
    }
    subscriber::arm(&names[0], Some(Arc::clone(&scene.gate.0)));
    subscriber::arm(&names[1], None);
    for key in &names {
        scene.server.query::<()>(redis::cmd("DEL").arg(format!("lock:{key}"))).unwrap();
    }
    for guard in &guards {
        eventually(PATIENCE, "the loss is noticed", || guard.state() == LockState::Lost);
    }
    scene.assert_others_go_on();
    scene.gate.0.open();
    for guard in guards {
        // A subscriber that blocks on the caller's own thread delays only that caller.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(guard)));
    }
    scene.end();
}

#[cfg(feature = "tracing")]
fn subscribers_that_panic_when_asked(path: Path) {
    in_own_process(|| {
        let scene = Scene::by(path);
        subscriber::when_asked(Some(Trouble::Panics));
        scene.assert_others_go_on();
        subscriber::when_asked(None);
        scene.end();
    });
}

#[cfg(feature = "tracing")]
fn subscribers_that_block_when_asked(path: Path) {
    in_own_process(|| {
        let scene = Scene::by(path);
        subscriber::when_asked(Some(scene.blocks()));
        scene.assert_others_go_on();
        subscriber::when_asked(None);
        scene.end();
    });
}

#[cfg(feature = "tracing")]
fn subscribers_that_block_for_a_crowd(path: Path) {
    in_own_process(|| {
        let scene = Scene::by(path);
        // More than there may be threads to tell people.
        let keys: Vec<_> = (0..80).map(|number| format!("crowd{number} {path:?}")).collect();
        let theirs = scene.taken(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        let _opens = scene.gate.early();
        for key in &keys {
            subscriber::arm(key, Some(Arc::clone(&scene.gate.0)));
        }
        let wait = |key: &String| {
            let (locks, key) = (scene.locks.clone(), key.clone());
            thread::spawn(move || locks.mutex(key).ttl(LONG).wait(PATIENCE).blocking_acquire())
        };
        let waiting: Vec<_> = keys.iter().map(wait).collect();
        eventually(PATIENCE, "it blocks", || subscriber::have_met(&keys) > 0);
        scene.assert_others_go_on();
        scene.gate.0.open();
        theirs.into_iter().for_each(|guard| guard.blocking_release().unwrap());
        for waiting in waiting {
            waiting.join().unwrap().unwrap().blocking_release().unwrap();
        }
        scene.end();
    });
}

#[cfg(feature = "tracing")]
fn subscribers_that_block_at_a_crowd_of_losses(path: Path) {
    in_own_process(|| {
        let scene = Scene::by(path);
        // More than there may be threads to tell people.
        let keys: Vec<_> = (0..80).map(|number| format!("lost{number} {path:?}")).collect();
        let take =
            |key: &String| scene.locks.mutex(key.as_str()).ttl(TTL).blocking_acquire().unwrap();
        let guards: Vec<_> = keys.iter().map(take).collect();
        let _opens = scene.gate.early();
        for key in &keys {
            subscriber::arm(key, Some(Arc::clone(&scene.gate.0)));
            scene.server.query::<()>(redis::cmd("DEL").arg(format!("lock:{key}"))).unwrap();
        }
        let are_lost = || guards.iter().all(|guard| guard.state() == LockState::Lost);
        eventually(PATIENCE, "the losses are noticed", are_lost);
        eventually(PATIENCE, "it blocks", || subscriber::have_met(&keys) > 0);
        scene.assert_others_go_on();
        scene.gate.0.open();
        drop(guards);
        scene.end();
    });
}

#[cfg(feature = "tracing")]
fn subscribers_that_block_when_the_server_falls_silent(path: Path) {
    in_own_process(|| {
        const SILENT: &str = "the lock server is unreachable: it fell silent; connecting again";
        let scene = Scene::by(path);
        let held = scene.locks.mutex("held").ttl(LONG).blocking_acquire().unwrap();
        subscriber::arm(SILENT, Some(Arc::clone(&scene.gate.0)));
        scene.server.freeze();
        eventually(PATIENCE, "the silence is noticed", || subscriber::has_met(SILENT));
        scene.server.thaw();
        scene.assert_others_go_on();
        assert!(held.is_held());
        scene.gate.0.open();
        held.blocking_release().unwrap();
        scene.end();
    });
}

macro_rules! by_engine_and_task {
    ($($(#[$attribute:meta])* $case:ident),+ $(,)?) => {$(
        $(#[$attribute])*
        mod $case {
            use crate::support::Path;

            #[test]
            fn engine_reads() {
                super::$case(Path::Usual);
            }

            #[test]
            fn task_reads() {
                super::$case(Path::Short);
            }
        }
    )+};
}

by_engine_and_task!(
    wakers_that_block,
    wakers_that_panic,
    wakers_that_ask_a_guard,
    wakers_that_block_at_a_loss,
    wakers_that_block_a_release_of_our_own,
    wakers_that_block_while_the_engine_ends,
    wakers_that_block_at_the_same_news,
    #[cfg(feature = "tracing")]
    subscribers_that_block_and_panic,
    #[cfg(feature = "tracing")]
    subscribers_that_panic_when_asked,
    #[cfg(feature = "tracing")]
    subscribers_that_block_when_asked,
    #[cfg(feature = "tracing")]
    subscribers_that_block_for_a_crowd,
    #[cfg(feature = "tracing")]
    subscribers_that_block_at_a_crowd_of_losses,
    #[cfg(feature = "tracing")]
    subscribers_that_block_when_the_server_falls_silent,
);
