//! Looking at one lock, and at all of them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use redis_locks::{LockError, LockKind, LockStatus, Locks, ReleaseBy};
use testbed::{Server, ServerBinary, cancel_at, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// One server of each family that can be had here.
fn servers() -> Vec<Server> {
    let binaries = [Some(ServerBinary::any()), ServerBinary::valkey(9)];
    binaries.into_iter().flatten().map(|it| Server::builder().binary(it).start()).collect()
}

fn locks(server: &Server, label: &str) -> Locks {
    Locks::builder().url(server.url()).label(label).open().unwrap()
}

/// Waits until the status of `key` is as wanted.
fn until(locks: &Locks, key: &str, what: &str, wanted: impl Fn(&LockStatus) -> bool) -> LockStatus {
    let mut last = None;
    eventually(20 * SECOND, what, || {
        let status = locks.blocking_status(key).unwrap();
        let fits = wanted(&status);
        last = Some(status);
        fits
    });
    last.unwrap()
}

#[test]
fn a_held_mutex_shows_its_holder() {
    for server in servers() {
        let (holder, onlooker) = (locks(&server, "host/1 job"), locks(&server, "eye"));
        let before = SystemTime::now();
        let guard = holder.mutex("a").ttl(20 * SECOND).fenced().blocking_acquire().unwrap();
        let status = onlooker.blocking_status("a").unwrap();
        assert_eq!((status.key.as_str(), status.kind), ("a", LockKind::Mutex));
        let [only] = status.holders.as_slice() else { panic!("{status:?}") };
        assert_eq!(only.token, *guard.token());
        assert_eq!(only.label.as_deref(), Some("host/1 job"));
        assert!(only.ttl.is_some_and(|ttl| ttl > 18 * SECOND && ttl <= 20 * SECOND), "{only:?}");
        let since = only.since.unwrap();
        assert!(since + Duration::from_millis(2) > before && since <= SystemTime::now());
        assert_eq!(only.fence, guard.fence());
        assert!(only.fence.is_some());
        assert!(status.waiters.is_empty() && status.is_held());
        guard.blocking_release().unwrap();
        let status = onlooker.blocking_status("a").unwrap();
        assert_eq!((status.kind, status.is_held()), (LockKind::Free, false));
    }
}

#[test]
fn the_server_says_who_it_is_and_how_locks_are_released_there() {
    for server in servers() {
        let status = locks(&server, "eye").blocking_status("a").unwrap();
        let (major, minor, patch) = server.binary().version();
        let version = format!("{:?} {major}.{minor}.{patch}", server.binary().flavor());
        assert_eq!(status.server.version, version);
        let native = matches!(server.binary().flavor(), testbed::Flavor::Valkey) && major >= 9
            || major >= 8 && minor >= 4;
        let wanted = if native { ReleaseBy::CompareAndDelete } else { ReleaseBy::Script };
        assert_eq!(status.server.release, wanted);
    }
    let status = Locks::in_memory().blocking_status("a").unwrap();
    assert_eq!(status.server.release, ReleaseBy::Memory);
}

#[test]
fn waiters_of_other_processes_are_shown_in_their_order_and_dead_ones_are_not() {
    for server in servers() {
        let managers = ["holder", "one", "two"].map(|label| locks(&server, label));
        let [holder, one, two] = &managers;
        let guard = holder.mutex("a").blocking_acquire().unwrap();
        let eye = locks(&server, "eye");
        std::thread::scope(|scope| {
            for (count, waiter) in [one, two].into_iter().enumerate() {
                scope.spawn(|| waiter.mutex("a").blocking_acquire().unwrap());
                until(&eye, "a", "it waits", |status| status.waiters.len() == count + 1);
            }
            // One that died: its place in the queue has ended.
            let mut place = redis::cmd("HSET");
            place.arg("lock:{lock:a}:~w").arg("rl1.x.m.0.dead").arg("1 -");
            server.query::<()>(&place).unwrap();
            server.run::<()>("ZADD lock:{lock:a}:~q 1 rl1.x.m.0.dead");
            let status = eye.blocking_status("a").unwrap();
            let labels: Vec<_> = status.waiters.iter().map(|it| it.label.as_deref()).collect();
            assert_eq!(labels, [Some("one"), Some("two")]);
            assert!(status.waiters.iter().all(|it| it.since.is_some()));
            guard.blocking_release().unwrap();
        });
    }
}

#[test]
fn tasks_that_wait_inside_this_process_are_shown_one_by_one() {
    let server = Server::start();
    for locks in
        [locks(&server, "here"), Locks::builder().in_memory().label("here").open().unwrap()]
    {
        let guard = locks.mutex("a").fenced().blocking_acquire().unwrap();
        std::thread::scope(|scope| {
            for count in 1..=3 {
                scope.spawn(|| drop(locks.mutex("a").blocking_acquire().unwrap()));
                until(&locks, "a", "it waits", |status| status.waiters.len() == count);
            }
            let status = locks.blocking_status("a").unwrap();
            assert!(status.waiters.iter().all(|it| it.label.as_deref() == Some("here")));
            assert_eq!(status.holders[0].fence, guard.fence());
            guard.blocking_release().unwrap();
        });
        until(&locks, "a", "all have had it", |status| !status.is_held());
    }
}

#[test]
fn a_guard_that_was_handed_the_lock_in_this_process_is_shown_as_it_is() {
    let server = Server::start();
    let locks = locks(&server, "here");
    let first = locks.mutex("a").fenced().blocking_acquire().unwrap();
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| locks.mutex("a").fenced().blocking_acquire().unwrap());
        until(&locks, "a", "it waits", |status| status.waiters.len() == 1);
        first.blocking_release().unwrap();
        second.join().unwrap()
    });
    let status = locks.blocking_status("a").unwrap();
    assert_eq!(status.holders[0].token, *second.token());
    assert_eq!(status.holders[0].fence, second.fence());
}

#[test]
fn locks_of_other_clients_and_data_of_other_programs_are_distinguished() {
    let server = Server::start();
    let locks = locks(&server, "eye");
    server.run::<()>("SET lock:py 0123abcd PX 9000");
    let status = locks.blocking_status("py").unwrap();
    assert_eq!(status.kind, LockKind::Foreign);
    assert_eq!(status.holders[0].token.to_string(), "0123abcd");
    assert!(status.holders[0].ttl.is_some_and(|ttl| ttl > 8 * SECOND));
    assert_eq!((status.holders[0].since, status.holders[0].fence), (None, None));
    server.run::<()>("SET lock:orphan 0123abcd");
    assert_eq!(locks.blocking_status("orphan").unwrap().holders[0].ttl, None);
    for command in ["HSET lock:data a 1", "RPUSH lock:data2 a", "ZADD lock:data3 1 a"] {
        server.run::<()>(command);
        let key = command.split_whitespace().nth(1).unwrap().strip_prefix("lock:").unwrap();
        let status = locks.blocking_status(key).unwrap();
        assert_eq!((status.kind, status.is_held()), (LockKind::Foreign, false), "{command}");
    }
}

#[test]
fn looking_writes_nothing() {
    let server = Server::start();
    let (holder, eye) = (locks(&server, "holder"), locks(&server, "eye"));
    let guard = holder.mutex("a").fenced().blocking_acquire().unwrap();
    let changes = || {
        let info: String = server.run("INFO persistence");
        let line = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save"));
        line.unwrap().to_owned()
    };
    let before = changes();
    eye.blocking_status("a").unwrap();
    eye.blocking_list("*").for_each(|status| drop(status.unwrap()));
    assert_eq!(changes(), before);
    guard.blocking_release().unwrap();
    assert_ne!(changes(), before, "the count counts");
}

#[test]
fn a_listing_has_every_lock_of_its_namespace_and_nothing_else() {
    for server in servers() {
        // Characters with a meaning in patterns.
        let build = |namespace: &str| {
            Locks::builder().url(server.url()).namespace(namespace).open().unwrap()
        };
        let (tricky, other) = (build("a*[b]"), build("axb"));
        let keys: BTreeSet<String> = (0..1_200).map(|number| format!("job:{number}")).collect();
        let guards: Vec<_> =
            keys.iter().map(|key| tricky.mutex(key).fenced().blocking_acquire().unwrap()).collect();
        let stranger = other.mutex("job:x").blocking_acquire().unwrap();
        let special = tricky.mutex("odd*key").blocking_acquire().unwrap();
        server.reset_counts();
        let found: Vec<LockStatus> =
            tricky.blocking_list("job:*").collect::<Result<_, _>>().unwrap();
        let names: BTreeSet<String> = found.iter().map(|status| status.key.clone()).collect();
        assert_eq!(names, keys);
        assert!(found.iter().all(|it| it.kind == LockKind::Mutex && it.holders.len() == 1));
        let counts = server.command_counts();
        assert!(!counts.contains_key("keys"), "{counts:?}");
        assert!(counts["scan"] > 3, "in pages: {counts:?}");
        let some = |pattern: &str| tricky.blocking_list(pattern).count();
        assert_eq!(some("job:119?"), 10);
        assert_eq!(some("odd\\*key"), 1);
        assert_eq!(some("odd\\*k"), 0);
        drop((guards, stranger, special));
    }
}

#[test]
fn a_listing_in_memory_reads_patterns_the_same_way() {
    let locks = Locks::in_memory();
    let guards = ["a:1", "a:2", "b:1"].map(|key| locks.mutex(key).blocking_acquire().unwrap());
    let mut found: Vec<_> = locks.blocking_list("a:*").map(|it| it.unwrap().key).collect();
    found.sort();
    assert_eq!(found, ["a:1", "a:2"]);
    drop(guards);
    assert_eq!(locks.blocking_list("*").count(), 0);
}

#[tokio::test]
async fn dropping_next_at_any_await_skips_nothing() {
    let server = Server::start();
    let locks = locks(&server, "eye");
    let keys: BTreeSet<String> = (0..40).map(|number| number.to_string()).collect();
    for key in &keys {
        server.run::<()>(&format!("SET lock:{key} foreign PX 60000"));
    }
    for polls in 1..4 {
        let mut listing = locks.list("*");
        let mut found = BTreeSet::new();
        loop {
            match cancel_at(polls, listing.next()).await {
                Some(Some(status)) => assert!(found.insert(status.unwrap().key)),
                Some(None) => break,
                // Dropped before it was done.
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        assert_eq!(found, keys, "{polls} polls");
    }
}

#[tokio::test]
async fn a_listing_ends_after_an_error_and_an_unreachable_server_is_no_empty_one() {
    let server = Server::start();
    let locks = Locks::builder()
        .url(server.url())
        .command_timeout(Duration::from_millis(200))
        .open()
        .unwrap();
    locks.status("a").await.unwrap();
    server.freeze();
    let error = locks.status("a").await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error}");
    let mut listing = locks.list("*");
    assert!(matches!(listing.next().await, Some(Err(LockError::Backend { .. }))));
    assert!(listing.next().await.is_none());
    server.thaw();
}

#[test]
fn bad_keys_and_a_shutdown_are_errors() {
    let locks = Locks::in_memory();
    assert!(matches!(locks.blocking_status(""), Err(LockError::InvalidKey { .. })));
    assert!(matches!(locks.blocking_force_release("", "x"), Err(LockError::InvalidKey { .. })));
    locks.blocking_shutdown();
    assert!(matches!(locks.blocking_status("a"), Err(LockError::Shutdown)));
    assert!(matches!(locks.blocking_list("a").next(), Some(Err(LockError::Shutdown))));
}
