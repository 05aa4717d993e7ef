//! Servers without scripting, and users without the right to it: mutexes by transactions.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::time::Instant;

use redis_locks::{
    BackendErrorKind, ConfigError, LockError, LockKind, Locks, ReleaseBy, Scripting,
};
use testbed::{
    Child, ChildIo, Flavor, Proxy, Server, ServerBinary, SharedCounter, cancel_at,
    cancel_in_flight, eventually,
};

use crate::support::*;

/// Everything but scripts.
pub(crate) const NO_SCRIPTS: &str = "app on >secret ~* &* +@all -eval -evalsha";

pub(crate) async fn never(server: &Server) -> Locks {
    Locks::builder().url(server.url()).scripting(Scripting::Never).connect().await.unwrap()
}

pub(crate) fn as_user(server: &Server, user: &str) -> String {
    format!("redis://{user}:secret@127.0.0.1:{}", server.port())
}

/// One of each sort that this machine has.
fn binaries() -> impl Iterator<Item = ServerBinary> {
    let others = [
        ServerBinary::valkey(9),
        ServerBinary::redis_6(),
        ServerBinary::redis_6_0(),
        ServerBinary::redis_5(),
    ];
    std::iter::once(ServerBinary::any()).chain(others.into_iter().flatten())
}

fn servers() -> Vec<Server> {
    binaries().map(|binary| Server::builder().binary(binary).start()).collect()
}

#[tokio::test]
async fn a_mutex_works_where_scripts_are_denied() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user(NO_SCRIPTS).start();
    let locks = Locks::connect(as_user(&server, "app")).await.unwrap();
    let guard = job(&locks).fenced().acquire().await.unwrap();
    assert_eq!(server.get(WIRE), Some(guard.token().to_string()));
    guard.verify().await.unwrap();
    guard.extend(LONG * 2).await.unwrap();
    assert!(server.pttl(WIRE).unwrap() > 50_000);
    assert!(job(&locks).reentrant().try_acquire().await.is_err() || guard.is_held());
    let status = locks.status(KEY).await.unwrap();
    assert_eq!(status.kind, LockKind::Mutex);
    let release = match compares_by_itself(&server) {
        true => ReleaseBy::CompareAndDelete,
        false => ReleaseBy::Transaction,
    };
    assert_eq!((status.server.release, status.server.scripts), (release, false));
    assert_eq!(status.holders[0].fence, guard.fence());
    guard.release().await.unwrap();
    assert_eq!(locks.status(KEY).await.unwrap().kind, LockKind::Free);
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_of_a_user_is_written_to_besides_the_lock() {
    const CHANNEL: &str = "~m:";
    for scripting in [Scripting::Never, Scripting::Auto] {
        let server = Server::start();
        let monitor = server.monitor();
        let builder = || Locks::builder().url(server.url()).scripting(scripting);
        let locks = builder().connect().await.unwrap();
        // No replica is there, so this is refused, after it was written to.
        let replicated = builder().replicas(1).command_timeout(COMMAND).connect().await.unwrap();
        let refused = job(&replicated).try_acquire().await;
        assert!(refused.is_err(), "{refused:?}");
        until("it is free", || !server.exists(WIRE)).await;
        job(&locks).fenced().acquire().await.unwrap().release().await.unwrap();
        let lines = monitor.lines();
        let words = lines.iter().flat_map(|line| line.split('"'));
        let names = words.filter_map(|word| word.strip_prefix("lock:"));
        let keys: BTreeSet<&str> = names.filter(|name| !name.starts_with(CHANNEL)).collect();
        let besides = keys.iter().filter(|key| !key.contains(KEY));
        assert!(besides.count() > 0, "{keys:?}");
        for key in keys.into_iter().filter(|key| *key != KEY) {
            let refused = locks.mutex(key).try_acquire().await;
            assert!(matches!(refused, Err(LockError::InvalidKey { .. })), "{key}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn kinds_that_need_scripts_are_refused_by_name() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user(NO_SCRIPTS).start();
    for locks in [never(&server).await, Locks::open(as_user(&server, "app")).unwrap()] {
        for request in
            [locks.read(KEY), locks.write(KEY), locks.permit(KEY, 2), locks.all(["one", "other"])]
        {
            let error = request.acquire().await.unwrap_err();
            let LockError::InvalidConfig { cause: ConfigError::Unsupported { .. }, .. } = &error
            else {
                panic!("{error}")
            };
            assert!(error.to_string().contains("+eval +evalsha"), "{error}");
        }
    }
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_handed_the_lock_in_order_and_at_once() {
    for server in servers() {
        let holder = never(&server).await;
        let guard = job(&holder).fenced().acquire().await.unwrap();
        let mut waiting = Vec::new();
        for number in 0..3 {
            let scripting = if number == 1 { Scripting::Auto } else { Scripting::Never };
            let locks = Locks::builder().url(server.url()).scripting(scripting).open().unwrap();
            let task = tokio::spawn(async move {
                let guard = job(&locks).fenced().acquire().await.unwrap();
                // Before the release, behind which the next one has it.
                let since = Instant::now();
                let fence = guard.fence().unwrap();
                guard.release().await.unwrap();
                (fence, since)
            });
            waiting.push(task);
            let key = format!("lock:{{{WIRE}}}:~q");
            eventually(PATIENCE, "it has queued", || {
                server.run::<usize>(&format!("ZCARD {key}")) == number + 1
            });
        }
        let mut last = (guard.fence().unwrap(), Instant::now());
        guard.release().await.unwrap();
        let mut fastest = PATIENCE;
        for task in waiting {
            let next = task.await.unwrap();
            assert!(next.0 > last.0 && next.1 > last.1, "in the order of their coming");
            fastest = fastest.min(next.1 - last.1);
            last = next;
        }
        // Who is not notified looks after 750 ms at the soonest.
        assert!(fastest < ms(700), "{fastest:?}: no waiter was handed it");
        server.assert_clean();
    }
}

#[tokio::test]
async fn a_lock_that_never_expires_is_ended_by_force_and_an_orphan_is_repaired() {
    let server = Server::start();
    let locks = never(&server).await;
    let guard = locks.mutex(KEY).never_expires().acquire().await.unwrap();
    assert_eq!(server.run::<i64>("PTTL lock:job"), -1);
    assert!(locks.force_release(KEY, "it hangs").await.unwrap());
    let reason = guard.lost().await;
    assert!(reason.to_string().contains("it hangs"), "{reason}");
    assert!(!locks.force_release(KEY, "it hangs").await.unwrap());
    drop(guard);
    eventually(SOON, "nothing stands there", || !server.exists(WIRE));
    server.run::<()>("SET lock:job orphan");
    let error = job(&locks).acquire().await.unwrap_err();
    assert!(error.to_string().contains("without a ttl"), "{error}");
    let guard = job(&locks).repair_orphan(ms(200)).acquire().await.unwrap();
    guard.release().await.unwrap();
    server.run::<()>("SET lock:job other PX 30000");
    assert_eq!(locks.status(KEY).await.unwrap().kind, LockKind::Foreign);
    assert!(locks.force_release(KEY, "it hangs").await.unwrap());
    server.run::<()>("LPUSH lock:job x");
    let error = job(&locks).acquire().await.unwrap_err();
    assert!(error.to_string().contains("a list of another program"), "{error}");
    server.run::<()>("DEL lock:job");
}

#[tokio::test]
async fn a_readers_lock_of_others_is_seen_and_refused_as_another_kind() {
    let server = Server::start();
    let (with, without) = (Locks::connect(server.url()).await.unwrap(), never(&server).await);
    let reading = with.read(KEY).acquire().await.unwrap();
    let status = without.status(KEY).await.unwrap();
    assert_eq!((status.kind, status.holders.len()), (LockKind::Read, 1));
    let error = job(&without).acquire().await.unwrap_err();
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), BackendErrorKind::OtherKind, "{error}");
    reading.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn many_locks_are_renewed_and_released() {
    const MANY: usize = 500;
    let server = Server::start();
    let builder = Locks::builder().url(server.url()).scripting(Scripting::Never);
    // So many transactions at once take a busy machine some seconds.
    let locks = builder.command_timeout(HANGS).connect().await.unwrap();
    let ttl = ms(6_000);
    let acquiring: Vec<_> = (0..MANY)
        .map(|at| tokio::spawn(locks.mutex(format!("k{at}")).ttl(ttl).acquire()))
        .collect();
    let mut guards = Vec::new();
    for acquired in acquiring {
        guards.push(acquired.await.unwrap().unwrap());
    }
    stays(ttl * 3 / 2, "none is lost", || guards.iter().all(|guard| guard.is_held())).await;
    let releasing: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    for released in releasing {
        released.await.unwrap().unwrap();
    }
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_transaction_whose_answer_is_cut_is_recognised_by_its_token() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
    let locks = builder.command_timeout(COMMAND).connect().await.unwrap();
    let blocker = never(&server).await;
    for _ in 0..3 {
        let held = job(&blocker).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&locks).fenced().acquire());
        eventually(PATIENCE, "it has queued", || server.keys().len() > 2);
        proxy.cut_reply_to("EXEC");
        held.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(
            server.get(WIRE).map(|it| it.trim_end_matches('+').to_owned()),
            Some(guard.token().to_string())
        );
        proxy.cut_reply_to("EXEC");
        guard.release().await.unwrap();
        eventually(PATIENCE, "it is free", || !server.exists(WIRE));
    }
    assert!(proxy.cuts() >= 3, "{} were cut", proxy.cuts());
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_dropped_at_any_await_between_watch_and_exec_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
    let locks = builder.command_timeout(COMMAND).connect().await.unwrap();
    for delay in [0, 3] {
        proxy.delay_up(ms(delay));
        for polls in 0..60 {
            let early = cancel_in_flight(polls, job(&locks).fenced().acquire()).await;
            let is_early = early.is_some();
            drop(early);
            let late = cancel_at(polls, job(&locks).fenced().acquire()).await;
            let done = is_early && late.is_some();
            drop(late);
            eventually(SOON, "no lock is left", || !server.exists(WIRE));
            if done {
                break;
            }
            assert!(polls < 59, "an acquisition that never ends");
        }
    }
    let watching = |list: &str| list.lines().any(|line| !line.contains(" watch=0"));
    if server.run::<String>("CLIENT LIST").contains(" watch=") {
        eventually(PATIENCE, "nothing is watched", || {
            !watching(&server.run::<String>("CLIENT LIST"))
        });
    }
    server.assert_clean();
}

/// What `SCRIPTING` asks this child process to use.
pub(crate) fn scripting_of_child() -> Scripting {
    match env::var("SCRIPTING").as_deref() {
        Ok("never") => Scripting::Never,
        _ => Scripting::Auto,
    }
}

/// Adds to the counter in the file, each time under the lock, by scripts or without.
pub(crate) fn count(io: &mut ChildIo) {
    let scripting = scripting_of_child();
    let rounds: u64 = env::var("ROUNDS").unwrap().parse().unwrap();
    let url = env::var("REDIS_URL").unwrap();
    let locks = Locks::builder().url(url).scripting(scripting).open().unwrap();
    let counter = SharedCounter::open(Path::new(&env::var("COUNTER").unwrap()));
    io.say("ready");
    io.hear();
    for round in 0..rounds {
        let guard = job(&locks).fenced().blocking_acquire().unwrap();
        counter.add_one(|| {}).unwrap();
        // Some releases wait for the answer, some are drops, some go in the background.
        match round % 3 {
            0 => drop(guard),
            1 => guard.release_in_background(),
            _ => guard.blocking_release().unwrap(),
        }
    }
    locks.blocking_shutdown();
    io.say("done");
    io.hear();
}

#[test]
fn s3_processes_with_and_without_scripts_lose_no_update() {
    const ROUNDS: u64 = 60;
    const PROCESSES: u64 = 8;
    for server in servers() {
        let counter = SharedCounter::create(&server.dir().join("counter")).unwrap();
        let (url, rounds) = (server.url(), ROUNDS.to_string());
        let path = counter.path().to_str().unwrap();
        let mut children: Vec<Child> = (0..PROCESSES)
            .map(|number| {
                let scripting = if number % 2 == 0 { "never" } else { "auto" };
                let variables = [
                    ("REDIS_URL", url.as_str()),
                    ("COUNTER", path),
                    ("ROUNDS", &rounds),
                    ("SCRIPTING", scripting),
                ];
                Child::spawn("mixed_count", &variables)
            })
            .collect();
        children.iter_mut().for_each(|child| drop(child.expect("ready")));
        let start = Instant::now();
        children.iter_mut().for_each(|child| child.tell("go"));
        children.iter_mut().for_each(|child| drop(child.expect_within(ms(60_000), "done")));
        println!("{}: {} locks in {:?}", server.binary(), ROUNDS * PROCESSES, start.elapsed());
        let counts = server.command_counts();
        println!("exec {:?} watch {:?}", counts.get("exec"), counts.get("watch"));
        assert_eq!(counter.read().unwrap(), ROUNDS * PROCESSES);
        for child in &mut children {
            child.tell("end");
            child.wait();
        }
        server.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_renamed_commands_is_used_without_what_it_lacks() {
    let renamed = ["EVAL", "EVALSHA", "SCRIPT", "PUBSUB", "PUBLISH"];
    let builder = Server::builder();
    let server = renamed.iter().fold(builder, |builder, name| builder.rename_command(name, ""));
    let server = server.start();
    let (one, other) =
        (Locks::connect(server.url()).await.unwrap(), Locks::connect(server.url()).await.unwrap());
    let guard = job(&one).acquire().await.unwrap();
    let waiting = tokio::spawn(job(&other).acquire());
    eventually(PATIENCE, "it has queued", || server.keys().len() > 2);
    guard.release().await.unwrap();
    let guard = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_is_used_without_scripts_where_eval_is_renamed_or_denied() {
    for binary in binaries() {
        let builder = || Server::builder().binary(binary.clone());
        let mut servers = vec![
            (builder().rename_command("EVAL", "").start(), "default"),
            (builder().rename_command("EVALSHA", "hidden").start(), "default"),
        ];
        if binary.version() >= (6, 0, 0) {
            for denied in ["-eval", "-evalsha", "-@scripting"] {
                let user = format!("app on >secret ~* &* +@all {denied}");
                servers.push((builder().user(&user).start(), "app"));
            }
        }
        for (server, user) in servers {
            let url = if user == "app" { as_user(&server, user) } else { server.url() };
            let locks = Locks::connect(url).await.unwrap();
            let guard = locks.mutex(KEY).ttl(ms(600)).acquire().await.unwrap();
            assert!(!locks.status(KEY).await.unwrap().server.scripts, "{binary}");
            stays(ms(1_000), "it is renewed", || guard.is_held()).await;
            guard.release().await.unwrap();
            server.assert_clean();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_locks_are_kept_when_scripts_are_denied_in_the_midst() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* &* +@all").start();
    let locks = Locks::connect(as_user(&server, "app")).await.unwrap();
    let guard = locks.mutex(KEY).ttl(ms(900)).acquire().await.unwrap();
    assert!(locks.status(KEY).await.unwrap().server.scripts);
    server.run::<()>("ACL SETUSER app -eval -evalsha");
    let other = locks.mutex("other").acquire().await.unwrap();
    stays(ms(2_000), "it is renewed without scripts", || guard.is_held()).await;
    guard.verify().await.unwrap();
    assert!(!locks.status(KEY).await.unwrap().server.scripts);
    other.release().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_without_scripts_renews_where_it_queues_transactions() {
    for server in servers() {
        let locks = never(&server).await;
        let guard = locks.mutex(KEY).ttl(ms(900)).acquire().await.unwrap();
        server.run::<()>("CONFIG SET maxmemory 1");
        let is_valkey = server.binary().flavor() == Flavor::Valkey;
        // Redis 7.0 queues nothing for a transaction then, and 7.4 does.
        if is_valkey || server.binary().version() >= (7, 4, 0) {
            stays(ms(2_000), "it is renewed", || guard.is_held()).await;
            guard.release().await.unwrap();
        } else {
            let reason = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
            println!("{}: {reason}", server.binary());
        }
        server.run::<()>("CONFIG SET maxmemory 0");
    }
}

/// The rights that docs/PROTOCOL.md asks for where there are no scripts, taken from there.
fn documented_rights() -> String {
    let text = include_str!("../../docs/PROTOCOL.md");
    let (_, listing) = text.split_once("Without scripts, for mutexes").unwrap();
    let listing = listing.split("```").nth(1).unwrap();
    let (_, rights) = listing.split_once(">secret").unwrap();
    format!("app on >secret {}", rights.replace('\n', " "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_without_scripts() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user(&documented_rights()).start();
    let url = as_user(&server, "app");
    let (one, other) = (Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap());
    let guard = job(&one).fenced().acquire().await.unwrap();
    let waiting = tokio::spawn(job(&other).fenced().acquire());
    eventually(PATIENCE, "it has queued", || server.exists("lock:{lock:job}:~q"));
    let status = one.status(KEY).await.unwrap();
    assert!(!status.server.scripts && status.waiters.len() == 1, "{status:?}");
    let fence = guard.fence();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.fence() > fence);
    guard.extend(LONG * 2).await.unwrap();
    drop(guard);
    eventually(SOON, "it is free", || !server.exists(WIRE));
    server.assert_clean();
}
