//! Without the right to publish and to subscribe, waiters look at intervals: slower, and no less
//! correct.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis_locks::Locks;
use testbed::{Child, ChildIo, Server, ServerBuilder, eventually};
use tokio::task::JoinSet;
use tracing::{Event, Level, Metadata, Subscriber, field, span};

use crate::support::*;

/// All that PROTOCOL.md asks for, but no channel.
const RIGHTS: &str = "app on >secret ~lock:* resetchannels +@all";

fn url(server: &Server) -> String {
    format!("redis://app:secret@127.0.0.1:{}", server.port())
}

/// For how long the looks of a waiter are counted.
const COUNTED: Duration = ms(4000);

const MANAGERS: usize = 5;
const ROUNDS: usize = 20;

async fn i8_managers_without_messages_exclude_each_other_and_none_starves(builder: ServerBuilder) {
    let server = builder.user(RIGHTS).start();
    let room = Room::default();
    let mut tasks = JoinSet::new();
    for _ in 0..MANAGERS {
        let locks = Locks::open(url(&server)).unwrap();
        let room = room.clone();
        tasks.spawn(async move {
            let mut worst = ms(0);
            for _ in 0..ROUNDS {
                let asked = Instant::now();
                let guard = job(&locks).acquire().await.unwrap();
                worst = worst.max(asked.elapsed());
                room.enter();
                tokio::time::sleep(ms(1)).await;
                room.leave();
                guard.release().await.unwrap();
            }
            worst
        });
    }
    // A waiter is granted in its turn and takes what it was granted at its next look, at most 0.8 s
    // after the last one: its turn comes at the latest after one look of each of the others.
    while let Some(worst) = tasks.join_next().await {
        let worst = worst.unwrap();
        assert!(worst < ms(10_000), "one waited for {worst:?}");
    }
    server.assert_clean();
}

async fn i8_looking_without_messages_does_not_hurry(builder: ServerBuilder) {
    let server = builder.user(RIGHTS).start();
    let holder = manager(&server);
    let guard = job(&holder).acquire().await.unwrap();
    let locks = Locks::open(url(&server)).unwrap();
    let waiting = tokio::spawn(job(&locks).acquire());
    until_queued(&server, 1);
    let monitor = server.monitor();
    tokio::time::sleep(COUNTED).await;
    let tries = monitor.count("\"EVALSHA\"");
    // Ever more rarely, until it is about twice a second.
    assert!((4..=20).contains(&tries), "{tries} tries in {COUNTED:?}");
    let start = Instant::now();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < LOOKED, "{:?} after the release", start.elapsed());
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn i8_that_there_are_no_messages_is_said_once(builder: ServerBuilder) {
    let server = builder.user(RIGHTS).start();
    let mut child = Child::spawn("denied", &[("REDIS_URL", &url(&server))]);
    child.expect("holding");
    let denied = || {
        let counts: String = server.run("INFO commandstats");
        let line = counts.lines().find(|line| line.starts_with("cmdstat_subscribe:"));
        let rejected =
            line.and_then(|line| line.split_once("rejected_calls=")?.1.split(',').next());
        rejected.map_or(0, |count| count.parse().unwrap())
    };
    eventually(PATIENCE, "it tries to subscribe again and again", || denied() >= 4);
    child.tell("enough");
    assert_eq!(child.expect("warnings"), "1");
    server.assert_clean();
}

/// Holds a lock, and counts what it warns of meanwhile.
pub(crate) fn denied(io: &mut ChildIo) {
    tracing::subscriber::set_global_default(Warnings).unwrap();
    let locks = Locks::open(env::var("REDIS_URL").unwrap()).unwrap();
    let guard = locks.mutex(KEY).blocking_acquire().unwrap();
    io.say("holding");
    io.hear();
    guard.blocking_release().unwrap();
    io.say(&format!("warnings {}", WARNINGS.load(Ordering::SeqCst)));
}

static WARNINGS: AtomicUsize = AtomicUsize::new(0);

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("redis_lock")
    }

    fn event(&self, event: &Event<'_>) {
        /// What the server is warned of when connecting is another matter.
        #[derive(Default)]
        struct Print {
            is_of_server: bool,
        }
        impl field::Visit for Print {
            fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
                eprintln!("{field}: {value:?}");
                self.is_of_server |= field.name() == "version";
            }
        }
        let mut print = Print::default();
        event.record(&mut print);
        if !print.is_of_server {
            WARNINGS.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

on_both_servers!(
    i8_managers_without_messages_exclude_each_other_and_none_starves,
    i8_looking_without_messages_does_not_hurry,
    i8_that_there_are_no_messages_is_said_once,
);
