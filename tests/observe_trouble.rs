//! Recorders and subscribers are the user's code: one that panics or blocks ends no process, and keeps no
//! answer from a call.

#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use redis_locks::{LockError, LockState, Locks};
use testbed::{Server, eventually, in_own_process};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Subscriber};

const PATIENCE: Duration = Duration::from_secs(20);

/// Where a recorder or a subscriber fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Describing,
    Counting,
    NewSpan,
    Entering,
    Event,
    Leaving,
    Closing,
}

/// What it does there.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Panics,
    Blocks,
}

/// Fails from the moment at which it is armed.
#[derive(Debug)]
struct Faulty {
    at: At,
    trouble: Trouble,
    armed: Arc<AtomicBool>,
    met: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
struct Switch {
    armed: Arc<AtomicBool>,
    met: Arc<AtomicUsize>,
}

impl Switch {
    fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }
}

impl Faulty {
    fn new(at: At, trouble: Trouble) -> (Self, Switch) {
        let (armed, met) = (Arc::default(), Arc::default());
        let switch = Switch { armed: Arc::clone(&armed), met: Arc::clone(&met) };
        (Self { at, trouble, armed, met }, switch)
    }

    fn reach(&self, at: At) {
        if at != self.at || !self.armed.load(Ordering::SeqCst) {
            return;
        }
        let is_of_engine = |name: &str| name.starts_with("redis-locks");
        match self.trouble {
            Trouble::Panics => {
                self.met.fetch_add(1, Ordering::SeqCst);
                panic!("a hook panics, as planned");
            }
            // A thread of the caller would delay that caller only.
            Trouble::Blocks if thread::current().name().is_some_and(is_of_engine) => {
                self.met.fetch_add(1, Ordering::SeqCst);
                loop {
                    thread::park();
                }
            }
            Trouble::Blocks => {}
        }
    }
}

impl Recorder for Faulty {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.reach(At::Describing);
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.reach(At::Counting);
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.reach(At::Counting);
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.reach(At::Counting);
        Histogram::noop()
    }
}

impl Subscriber for Faulty {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "redis_locks"
    }

    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.reach(At::NewSpan);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.reach(At::Event);
    }

    fn enter(&self, _: &Id) {
        self.reach(At::Entering);
    }

    fn exit(&self, _: &Id) {
        self.reach(At::Leaving);
    }

    fn try_close(&self, _: Id) -> bool {
        self.reach(At::Closing);
        true
    }
}

fn install(at: At, trouble: Trouble) -> Switch {
    let (faulty, switch) = Faulty::new(at, trouble);
    match at {
        At::Describing | At::Counting => metrics::set_global_recorder(faulty).expect("the first"),
        _ => tracing::subscriber::set_global_default(faulty).expect("the first"),
    }
    switch
}

/// Runs `part` on a thread, so that one that hangs fails the test.
#[track_caller]
fn within<T: Send + 'static>(what: &str, part: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let _ = tell.send(part());
    });
    hear.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} hangs"))
}

/// What needs the engine's thread: connections, answers, time limits and a shutdown.
fn assert_the_engine_serves(locks: &Locks) {
    let held = locks.mutex("held").blocking_acquire().expect("it is free");
    let second = locks.clone();
    let busy = within("a call with a time limit", move || {
        second.mutex("held").wait(Duration::from_millis(100)).blocking_acquire()
    });
    assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
    within("a release", move || held.blocking_release()).expect("a release");
}

fn a_recorder_at_its_descriptions(trouble: Trouble) {
    in_own_process(|| {
        let switch = install(At::Describing, trouble);
        switch.arm();
        let server = Server::start();
        for locks in [Locks::in_memory(), Locks::open(server.url()).expect("locks")] {
            assert_the_engine_serves(&locks);
            within("the shutdown", move || locks.blocking_shutdown());
        }
        eventually(PATIENCE, "the metrics are described", || switch.met() > 0);
        server.assert_clean();
    });
}

#[test]
fn a_recorder_that_panics_at_a_description_stops_no_call() {
    a_recorder_at_its_descriptions(Trouble::Panics);
}

#[test]
fn a_recorder_that_blocks_at_a_description_stops_no_call() {
    a_recorder_at_its_descriptions(Trouble::Blocks);
}

/// A panic of the body drops a guard, and a call that waits, while the thread unwinds.
fn a_hook_that_panics_while_a_body_panics(at: At) {
    in_own_process(move || {
        let switch = install(at, Trouble::Panics);
        let locks = Locks::in_memory();
        let waits = locks.mutex("first").blocking_acquire().expect("it is free");
        let body = || {
            let _guard = locks.mutex("k").blocking_acquire().expect("it is free");
            let mut waiting = pin!(locks.mutex("first").wait(PATIENCE).acquire());
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            switch.arm();
            panic!("the body panics");
        };
        assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
        assert!(switch.met() > 0, "it was not asked at {at:?}");
        // It goes on to panic, and calls on this thread go on.
        waits.blocking_release().expect("a release");
        assert_the_engine_serves(&locks);
        locks.blocking_shutdown();
    });
}

#[test]
fn a_recorder_that_panics_during_a_panic_ends_no_process() {
    a_hook_that_panics_while_a_body_panics(At::Counting);
}

#[test]
fn a_subscriber_that_panics_at_an_event_during_a_panic_ends_no_process() {
    a_hook_that_panics_while_a_body_panics(At::Event);
}

#[test]
fn a_subscriber_that_panics_when_a_span_is_entered_ends_no_process() {
    a_hook_that_panics_while_a_body_panics(At::Entering);
}

#[test]
fn a_subscriber_that_panics_when_a_span_is_left_ends_no_process() {
    a_hook_that_panics_while_a_body_panics(At::Leaving);
}

#[test]
fn a_subscriber_that_panics_when_a_span_is_closed_ends_no_process() {
    a_hook_that_panics_while_a_body_panics(At::Closing);
}

#[test]
fn a_subscriber_that_panics_at_a_new_span_fails_no_call() {
    in_own_process(|| {
        let switch = install(At::NewSpan, Trouble::Panics);
        switch.arm();
        let locks = Locks::in_memory();
        assert_the_engine_serves(&locks);
        assert!(switch.met() > 0);
        locks.blocking_shutdown();
    });
}

/// Losses are found by the engine, which serves all callers.
#[test]
fn a_recorder_that_blocks_at_a_crowd_of_losses_delays_no_call() {
    in_own_process(|| {
        let switch = install(At::Counting, Trouble::Blocks);
        let server = Server::start();
        let locks = Locks::open(server.url()).expect("locks");
        // More than there are threads for wakers.
        let keys: Vec<_> = (0..80).map(|number| format!("lost{number}")).collect();
        let ttl = Duration::from_millis(900);
        let take = |key: &String| locks.mutex(key.as_str()).ttl(ttl).blocking_acquire().unwrap();
        let guards: Vec<_> = keys.iter().map(take).collect();
        switch.arm();
        for key in &keys {
            server.query::<()>(redis::cmd("DEL").arg(format!("lock:{key}"))).unwrap();
        }
        let are_lost = || guards.iter().all(|guard| guard.state() == LockState::Lost);
        eventually(PATIENCE, "the losses are noticed", are_lost);
        eventually(PATIENCE, "the recorder blocks", || switch.met() > 0);
        for _ in 0..5 {
            assert_the_engine_serves(&locks);
        }
        drop(guards);
        within("the shutdown", move || locks.blocking_shutdown());
        server.assert_clean();
    });
}
