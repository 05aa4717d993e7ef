//! A process that forks: the copy has the parent's sockets, and copies of its guards.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Instant;

use redis_locks::{Guard, LockError, Locks, Scripting};
use testbed::{Child, ChildIo, Server, eventually, holds_for, kill_process};
use tokio::runtime::Runtime;

use crate::support::*;

const TTL: std::time::Duration = ms(1200);

/// How often the process is copied while its other threads work: some copies find a lock of ours
/// locked by a thread that they do not have.
const COPIES: usize = 25;

/// How long a call in a copy may take: none of them has anything to wait for.
const AT_ONCE: std::time::Duration = ms(1_000);

/// How long a command may take: the copies keep the machine busy themselves.
const PATIENT: std::time::Duration = ms(3_000);

fn patient() -> Locks {
    let url = std::env::var("REDIS_URL").unwrap();
    builder(&url).command_timeout(PATIENT).open().unwrap()
}

pub(crate) fn by_engine(io: &mut ChildIo) {
    play(io, &patient(), 2);
}

/// One thread locks all the time.
pub(crate) fn by_thread(io: &mut ChildIo) {
    play_warm(io, &patient());
}

/// The same without scripts, where its releases have a connection of their own.
pub(crate) fn by_transactions(io: &mut ChildIo) {
    let builder = Locks::builder().url(std::env::var("REDIS_URL").unwrap());
    let builder = builder.scripting(Scripting::Never).command_timeout(PATIENT);
    play_warm(io, &builder.open().unwrap());
}

fn play_warm(io: &mut ChildIo, locks: &Locks) {
    for _ in 0..400 {
        // Also a release that is late has been asked for.
        let released = locks.mutex("warm").blocking_acquire().unwrap().blocking_release();
        assert!(!released.is_err_and(|error| error.is_lost()));
    }
    play(io, locks, 1);
}

pub(crate) fn by_task(io: &mut ChildIo) {
    let url = std::env::var("REDIS_URL").unwrap();
    let runtime = Runtime::new().unwrap();
    let warm = Path::Short;
    let locks = runtime
        .block_on(async {
            tokio::spawn(scoped(warm, async move { connect_with(&url, PATIENT).await })).await
        })
        .unwrap();
    play(io, &locks, 2);
}

/// Holds locks, works on others in threads, and copies itself.
fn play(io: &mut ChildIo, locks: &Locks, threads: usize) {
    let ended = Arc::new(AtomicBool::new(false));
    join(locks);
    let workers: Vec<_> = (0..threads).map(|number| work(locks, number, &ended)).collect();
    let mut pid = None;
    for _ in 0..COPIES {
        let guards = Held::take(locks);
        pid = testbed_fork::forked();
        let Some(copy) = pid else {
            in_copy(io, guards, locks.clone());
            // Ends without the test harness, whose threads are not in the copy.
            std::process::exit(0);
        };
        let answer = io.hear();
        if answer != "go on" {
            kill_process(copy);
            return;
        }
        guards.check(io);
    }
    assert!(pid.is_some());
    ended.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.join().unwrap();
    }
    locks.blocking_shutdown();
    io.say("parent is done");
}

fn work(locks: &Locks, number: usize, ended: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (locks, ended) = (locks.clone(), Arc::clone(ended));
    thread::spawn(move || {
        while !ended.load(Ordering::SeqCst) {
            let guard = locks.mutex(format!("work{number}")).blocking_acquire().unwrap();
            guard.blocking_release().unwrap();
        }
    })
}

/// What the process has when it is copied: guards to be used, dropped and released, and a waiter.
struct Held {
    kept: Guard,
    dropped: Guard,
    released: Guard,
    /// Where there are scripts.
    writer: Option<Guard>,
    waiting: Pin<Box<dyn Future<Output = Result<Guard, LockError>> + Send>>,
}

impl Held {
    fn take(locks: &Locks) -> Self {
        let take = |key: &str| locks.mutex(key).ttl(TTL).blocking_acquire().unwrap();
        let (kept, dropped, released) = (take("kept"), take("dropped"), take("released"));
        let has_scripts = locks.blocking_status("kept").unwrap().server.scripts;
        let writer =
            has_scripts.then(|| locks.write("writer").ttl(TTL).blocking_acquire().unwrap());
        let mut waiting = Box::pin(locks.mutex("kept").ttl(TTL).wait_forever().acquire());
        let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        Self { kept, dropped, released, writer, waiting }
    }

    /// In the parent: everything is as it was before the copy did what it did.
    fn check(self, io: &mut ChildIo) {
        let mut guards = vec![self.kept, self.dropped, self.released];
        guards.extend(self.writer);
        for guard in &guards {
            assert!(guard.is_held(), "{guard:?}");
            guard.blocking_verify().unwrap();
        }
        io.say("still held");
        for guard in guards {
            guard.blocking_release().unwrap();
        }
        pollster::block_on(self.waiting).unwrap().blocking_release().unwrap();
    }
}

/// In the copy: reports what goes wrong, and when it is done.
fn in_copy(io: &mut ChildIo, held: Held, locks: Locks) {
    let mut check = |what: &str, is_right: &dyn Fn() -> bool| {
        let start = Instant::now();
        if !is_right() || start.elapsed() > AT_ONCE {
            io.say(&format!("wrong {what} after {:?}", start.elapsed()));
        }
    };
    let Held { kept, dropped, released, writer, waiting } = held;
    check("state", &|| kept.state() == redis_locks::LockState::Lost && !kept.is_held());
    check("remaining", &|| kept.remaining().is_zero());
    check("ensure", &|| kept.ensure(ms(0)).is_err_and(|error| error.is_lost()));
    check("lost", &|| {
        matches!(pollster::block_on(kept.lost()), redis_locks::LossReason::Removed { .. })
    });
    check("verify", &|| kept.blocking_verify().is_err_and(|error| error.is_lost()));
    check("extend", &|| kept.blocking_extend(LONG).is_err_and(|error| error.is_lost()));
    let once = |guard: Guard| std::cell::Cell::new(Some(guard));
    if let Some(writer) = writer.map(once) {
        check("downgrade", &|| {
            writer.take().unwrap().blocking_downgrade().is_err_and(|error| error.is_lost())
        });
    }
    let released = once(released);
    check("release", &|| {
        released.take().unwrap().blocking_release().is_err_and(|error| error.is_lost())
    });
    let dropped = once(dropped);
    check("drop", &|| {
        drop(dropped.take());
        true
    });
    let waiting = std::cell::Cell::new(Some(waiting));
    check("drop of a waiter", &|| {
        drop(waiting.take());
        true
    });
    let ended =
        |outcome: Result<Option<Guard>, LockError>| matches!(outcome, Err(LockError::Shutdown));
    check("try", &|| ended(locks.mutex("free").blocking_try_acquire()));
    check("acquire", &|| ended(locks.mutex("free").wait(ms(100)).blocking_acquire().map(Some)));
    check("status", &|| matches!(locks.blocking_status("kept"), Err(LockError::Shutdown)));
    check("list", &|| {
        locks.blocking_list("*").next().is_some_and(|item| matches!(item, Err(LockError::Shutdown)))
    });
    check("force", &|| {
        matches!(locks.blocking_force_release("kept", "a copy"), Err(LockError::Shutdown))
    });
    check("shutdown", &|| {
        locks.blocking_shutdown();
        true
    });
    drop((kept, locks));
    use_own(io);
    io.say("copy is done");
}

/// Joins a hold, which waits for a turn beside others that join it.
fn join(locks: &Locks) {
    let inner = || locks.mutex("joined").reentrant().blocking_acquire();
    let joined = locks.mutex("joined").blocking_run(|_| inner().map(drop));
    joined.unwrap().unwrap();
}

/// A manager of its own works as everywhere.
fn use_own(io: &mut ChildIo) {
    let own = open(&std::env::var("REDIS_URL").unwrap());
    match own.mutex("own").no_wait().blocking_acquire() {
        Ok(guard) if guard.is_held() => guard.blocking_release().unwrap(),
        other => io.say(&format!("wrong lock of its own {other:?}")),
    }
    join(&own);
    own.blocking_shutdown();
}

/// Keeps an idle lease, and copies itself.
pub(crate) fn idle(io: &mut ChildIo) {
    let url = std::env::var("REDIS_URL").unwrap();
    let scripting = if std::env::var("SCRIPTING").as_deref() == Ok("never") {
        Scripting::Never
    } else {
        Scripting::Auto
    };
    let open = || Locks::builder().url(&*url).scripting(scripting).open().unwrap();
    let client = redis::Client::open(&*url).unwrap();
    let value = || -> Option<String> {
        redis::Commands::get(&mut client.get_connection().unwrap(), "lock:idle").unwrap()
    };
    let locks = open();
    let request = || locks.mutex("idle").ttl(LONG).linger(LONG);
    while value().is_none() {
        request().blocking_acquire().unwrap().blocking_release().unwrap();
    }
    let before = value();
    if testbed_fork::forked().is_none() {
        // The parent's idle lease is not handed out in the copy, and not released by what the copy
        // drops.
        let tried = request().blocking_try_acquire();
        if !matches!(tried, Err(LockError::Shutdown)) || value() != before {
            io.say(&format!("wrong {tried:?}"));
        }
        drop(locks);
        if value() != before {
            io.say(&format!("wrong value {:?}", value()));
        }
        // A manager of its own asks for it as any other process does.
        let own = open();
        let start = Instant::now();
        let guard = own.mutex("idle").ttl(LONG).wait(PATIENCE).blocking_acquire().unwrap();
        guard.blocking_release().unwrap();
        own.blocking_shutdown();
        io.say(&format!("copy is done after {}", start.elapsed().as_millis()));
        std::process::exit(0);
    }
    io.hear();
    request().blocking_acquire().unwrap().blocking_release().unwrap();
    locks.blocking_shutdown();
    io.say("parent is done");
}

fn forks_while_idle(scripting: &str) {
    let server = Server::start();
    let mut child =
        Child::spawn("forked_idle", &[("REDIS_URL", &*server.url()), ("SCRIPTING", scripting)]);
    let millis = child.expect_within(PATIENCE, "copy is done after");
    let wrong: Vec<_> = child.heard().iter().filter(|line| line.starts_with("wrong")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(ms(millis.trim().parse().unwrap()) < LONG / 3, "it was handed over: {millis} ms");
    child.tell("go on");
    child.expect("parent is done");
    assert!(child.wait().success());
    server.assert_clean();
}

#[test]
fn lg15_a_copy_asks_for_what_its_parent_keeps() {
    forks_while_idle("auto");
}

#[test]
fn lg15_the_same_without_scripts() {
    forks_while_idle("never");
}

fn forks_and_looks(role: &str) {
    let server = Server::start();
    let mut child = Child::spawn(role, &[("REDIS_URL", &server.url())]);
    for copy in 0..COPIES {
        child.expect_within(PATIENCE, "copy is done");
        let wrong: Vec<_> = child.heard().iter().filter(|line| line.starts_with("wrong")).collect();
        assert!(wrong.is_empty(), "copy {copy}: {wrong:?}");
        let held = ["kept", "dropped", "released"].map(|key| format!("lock:{key}"));
        if copy == 0 {
            // Longer than their leases: the parent renews them.
            holds_for(TTL * 2, "the parent's locks stay", || {
                held.iter().all(|key| server.exists(key))
            });
        }
        child.tell("go on");
        child.expect("still held");
    }
    child.expect("parent is done");
    assert!(child.wait().success());
    eventually(PATIENCE, "nothing is left", || server.keys().is_empty());
    server.assert_clean();
}

#[test]
fn a_copy_of_the_process_has_lost_all_and_touches_nothing() {
    forks_and_looks("forked_by_engine");
}

#[test]
fn the_same_where_a_task_reads() {
    forks_and_looks("forked_by_task");
}

#[test]
fn the_same_where_a_thread_is_busy() {
    forks_and_looks("forked_by_thread");
}

#[test]
fn the_same_without_scripts() {
    forks_and_looks("forked_by_transactions");
}

/// Copies itself twice, as a server that forks its workers does, after it has drawn random bits.
pub(crate) fn twice(io: &mut ChildIo) {
    let url = std::env::var("REDIS_URL").unwrap();
    let open = || Locks::builder().url(&*url).label("worker").open().unwrap();
    take_once(&open());
    for copy in 0..2 {
        if testbed_fork::forked().is_none() {
            io.say(&format!("token {}", take_once(&open())));
            std::process::exit(copy);
        }
    }
    io.hear();
}

/// Takes a lock and releases it; returns its token.
fn take_once(locks: &Locks) -> String {
    let guard = locks.mutex("worked").wait(PATIENCE).blocking_acquire().unwrap();
    let token = guard.token().to_string();
    guard.blocking_release().unwrap();
    locks.blocking_shutdown();
    token
}

#[test]
fn copies_of_a_process_have_tokens_and_names_of_their_own() {
    let server = Server::start();
    let mut child = Child::spawn("forked_twice", &[("REDIS_URL", &server.url())]);
    let tokens = [child.expect("token"), child.expect("token")];
    let [first, second] = tokens.each_ref().map(|token| token.split('.').collect::<Vec<_>>());
    assert_ne!(first[1], second[1], "what tells one acquisition from others");
    assert_ne!(first[2], second[2], "the manager, to which messages go");
    child.tell("go on");
    assert!(child.wait().success());
    server.assert_clean();
}
