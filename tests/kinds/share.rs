//! `share`: those who wait get the value of the call that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis_locks::{LockError, LockRequest, Locks, Origin, Reply};
use testbed::{Child, ChildIo, Server, eventually};

use crate::arena::{Arena, PATIENCE, is_free, ms, take};

fn share(locks: &Locks) -> LockRequest {
    locks.mutex("k").share().wait(PATIENCE)
}

fn arenas() -> Vec<Arena> {
    let mut arenas = Arena::each();
    arenas.push(Arena::without_scripts());
    arenas.extend(Arena::clusters());
    arenas
}

type Outcome = Result<Reply<String>, LockError>;

fn call(request: LockRequest, value: &str) -> std::thread::JoinHandle<Outcome> {
    let value = value.to_owned();
    std::thread::spawn(move || request.blocking_call(|_| Ok(value)))
}

fn waiting(arena: &Arena) -> usize {
    arena.one.blocking_status("k").unwrap().waiters.len()
}

/// A call whose body runs until `end` is called.
struct Running {
    call: std::thread::JoinHandle<Outcome>,
    ends: std::sync::mpsc::Sender<Outcome>,
}

impl Running {
    fn start(request: LockRequest) -> Self {
        let (ends, end) = std::sync::mpsc::channel::<Outcome>();
        let (began, begins) = std::sync::mpsc::channel();
        let call = std::thread::spawn(move || {
            request.blocking_call(|_| {
                began.send(()).unwrap();
                end.recv().unwrap().map(Reply::into_value)
            })
        });
        begins.recv().unwrap();
        Self { call, ends }
    }

    fn end(self, value: Result<&str, LockError>) -> Outcome {
        let locks = Locks::in_memory();
        let outcome = value.map(|value| {
            locks
                .mutex("v")
                .share()
                .blocking_call(|_| Ok::<_, LockError>(value.to_owned()))
                .unwrap()
        });
        self.ends.send(outcome).unwrap();
        self.call.join().unwrap()
    }
}

#[test]
fn waiting_calls_of_every_process_get_the_value_and_later_calls_run() {
    for arena in arenas() {
        for round in 0..2 {
            let running = Running::start(share(&arena.one));
            let third = arena.third();
            let calls = [&arena.one, &arena.one, &arena.other, &arena.other, &third]
                .map(|locks| call(share(locks), "own"));
            // Those of another process are one waiter, unless it has the lock.
            let (all, seen) = if arena.name == "memory" { (5, 5) } else { (4, 3) };
            let other = || arena.other.blocking_status("k").unwrap().waiters.len();
            eventually(PATIENCE, "all wait", || waiting(&arena) == all && other() == seen);
            let busy = share(&arena.other).no_wait().blocking_call(|_| Ok::<_, LockError>(1));
            assert!(busy.is_err_and(|error| error.is_busy()), "{}", arena.name);
            let own = running.end(Ok("first")).unwrap();
            assert_eq!((own.origin(), own.value().as_str()), (Origin::Body, "first"));
            for call in calls {
                let reply = call.join().unwrap().unwrap();
                let got = (reply.origin(), reply.value().as_str());
                assert_eq!(got, (Origin::Shared, "first"), "{}, round {round}", arena.name);
            }
            // The next call runs by itself.
            let next = call(share(&arena.other), "next").join().unwrap().unwrap();
            assert_eq!((next.origin(), next.value().as_str()), (Origin::Body, "next"));
            if let Some(server) = &arena.server {
                let gone = || server.run::<i64>("EXISTS lock:{lock:k}:~s lock:{lock:k}:~v") == 0;
                eventually(PATIENCE, "the last one has taken the value away", gone);
            }
        }
        arena.assert_clean();
    }
}

#[test]
fn when_it_fails_or_is_lost_the_next_one_runs_and_no_value_of_it_is_seen() {
    for arena in arenas() {
        let running = Running::start(share(&arena.one));
        let calls = [&arena.one, &arena.other, &arena.other].map(|it| call(share(it), "own"));
        let other = || arena.other.blocking_status("k").unwrap().waiters.len();
        let all = if arena.name == "memory" { 3 } else { 2 };
        eventually(PATIENCE, "all wait", || waiting(&arena) == all && other() == all);
        assert_eq!(running.end(Err(LockError::NotConfigured)), Err(LockError::NotConfigured));
        let replies: Vec<_> = calls.into_iter().map(|it| it.join().unwrap().unwrap()).collect();
        let ran = replies.iter().filter(|reply| reply.origin() == Origin::Body).count();
        assert!((1..=2).contains(&ran), "{}: {replies:?}", arena.name);
        assert!(replies.iter().all(|reply| reply.value() == "own"));

        let running = Running::start(share(&arena.one));
        let waits = call(share(&arena.other), "own");
        eventually(PATIENCE, "it waits", || waiting(&arena) == 1);
        assert!(arena.other.blocking_force_release("k", "it hangs").unwrap());
        let lost = running.end(Ok("of a lost lock"));
        assert!(lost.as_ref().is_err_and(LockError::is_lost), "{}: {lost:?}", arena.name);
        let reply = waits.join().unwrap().unwrap();
        assert_eq!((reply.origin(), reply.value().as_str()), (Origin::Body, "own"));
        arena.assert_clean();
    }
}

#[test]
fn who_cannot_read_the_value_runs_and_who_does_not_share_waits_on() {
    for arena in arenas() {
        let running = Running::start(share(&arena.one));
        let number = |locks: &Locks| {
            let request = share(locks);
            std::thread::spawn(move || request.blocking_call(|_| Ok::<u32, LockError>(7)))
        };
        let numbers = [number(&arena.one), number(&arena.other)];
        let plain = arena.other.mutex("k");
        let plain = std::thread::spawn(move || take(plain).blocking_release());
        eventually(PATIENCE, "all wait", || waiting(&arena) == 3);
        running.end(Ok("no number")).unwrap();
        for number in numbers {
            let reply = number.join().unwrap().unwrap();
            assert_eq!((reply.origin(), *reply), (Origin::Body, 7), "{}", arena.name);
        }
        plain.join().unwrap().unwrap();
        // A value that is too large is shared with none.
        let running = Running::start(share(&arena.one));
        let waits = call(share(&arena.other), "own");
        eventually(PATIENCE, "it waits", || waiting(&arena) == 1);
        let large = "x".repeat(65 << 10);
        running.ends.send(Err(LockError::NotConfigured)).unwrap();
        drop(running.call.join());
        assert_eq!(waits.join().unwrap().unwrap().origin(), Origin::Body);
        let own = arena.one.mutex("l").share().blocking_call(|_| Ok::<_, LockError>(large.clone()));
        assert_eq!(own.unwrap().into_value(), large);
        arena.assert_clean();
    }
}

#[test]
fn one_key_stands_for_one_input() {
    for arena in arenas() {
        let running = Running::start(share(&arena.one).same("a"));
        for locks in [&arena.one, &arena.other] {
            let differs = call(share(locks).same("b"), "own").join().unwrap();
            assert!(matches!(differs, Err(LockError::Mismatch { .. })), "{differs:?}");
        }
        eventually(PATIENCE, "the refused calls have left", || waiting(&arena) == 0);
        let waits = call(share(&arena.other).same("a"), "own");
        eventually(PATIENCE, "it waits", || waiting(&arena) == 1);
        running.end(Ok("first")).unwrap();
        assert_eq!(waits.join().unwrap().unwrap().origin(), Origin::Shared, "{}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn what_does_not_go_with_it_is_refused_by_name() {
    let locks = Locks::in_memory();
    let second = Duration::from_secs(1);
    let share = || locks.mutex("k").share();
    for (request, other) in [
        (share().once(second), "once"),
        (share().never_expires(), "never_expires"),
        (share().reentrant(), "reentrant"),
        (share().linger(second), "linger"),
        (locks.read("k").share(), "mutex"),
        (locks.permit("k", 2).share(), "mutex"),
        (locks.all(["k", "l"]).share(), "mutex"),
        (share().queue(1), "queue"),
        (share().newest(), "newest"),
    ] {
        let error = request.blocking_call(|_| Ok::<_, LockError>(1)).unwrap_err().to_string();
        assert!(error.contains("share") && error.contains(other), "{error}");
    }
    for error in [
        share().blocking_acquire().unwrap_err(),
        share().blocking_run(|_| 1).unwrap_err(),
        share().blocking_try_run(|_| Ok::<_, LockError>(1)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("share does not go with"), "{error}");
    }
    let nodes = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let quorum = Locks::builder().quorum(nodes).open().unwrap();
    for (request, name) in [
        (quorum.mutex("k").share(), "`share`"),
        (quorum.mutex("k").once(second).replay(), "`once`"),
    ] {
        let error = request.blocking_call(|_| Ok::<_, LockError>(1)).unwrap_err();
        assert!(
            matches!(error, LockError::InvalidConfig { .. }) && error.to_string().contains(name),
            "{error}"
        );
    }
    assert!(is_free(locks.mutex("k")));
}

/// How many calls one process makes at the same time.
const CALLERS: usize = 250;

/// Calls of one process, all at the same time, in each burst that it hears of.
pub(crate) fn bursts(io: &mut ChildIo) {
    let locks = Locks::builder()
        .url(std::env::var("SERVER").unwrap())
        .label(std::env::var("NAME").unwrap())
        .connect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let locks = runtime.block_on(locks).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    io.say("ready");
    loop {
        let round: usize = io.hear().parse().unwrap();
        ran.store(0, Ordering::SeqCst);
        let calls: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (locks, ran) = (locks.clone(), Arc::clone(&ran));
                runtime.spawn(async move {
                    let request = locks.mutex("k").share();
                    request
                        .call(async move |_| {
                            ran.fetch_add(1, Ordering::SeqCst);
                            tokio::time::sleep(ms(1_500)).await;
                            Ok::<_, LockError>(round)
                        })
                        .await
                })
            })
            .collect();
        let got: Vec<_> =
            calls.into_iter().map(|it| runtime.block_on(it).unwrap().unwrap()).collect();
        assert!(got.iter().all(|reply| **reply == round), "a value of another burst");
        io.say(&format!("ran {}", ran.load(Ordering::SeqCst)));
    }
}

#[test]
fn a_thousand_calls_of_four_processes_run_one_body_and_ask_little() {
    let server = Server::start();
    let names = ["p0", "p1", "p2", "p3"];
    let spawn =
        |name: &&str| Child::spawn("share_bursts", &[("SERVER", &server.url()), ("NAME", name)]);
    let mut children: Vec<_> = names.iter().map(spawn).collect();
    children.iter_mut().for_each(|child| drop(child.expect("ready")));
    for round in 1..=4 {
        let monitor = server.monitor();
        let begun = Instant::now();
        children.iter_mut().for_each(|child| child.tell(&round.to_string()));
        let ran: Vec<usize> = children
            .iter_mut()
            .map(|child| child.expect("ran").trim_start_matches("ran ").parse().unwrap())
            .collect();
        let commands = sent(&monitor);
        let sent = commands.len();
        println!("round {round}: {ran:?} bodies, {sent} commands in {:?}", begun.elapsed());
        if begun.elapsed() > ms(2_500) {
            // The machine was so busy that some calls came after the first body had ended.
            continue;
        }
        assert_eq!(ran.iter().sum::<usize>(), 1, "one body for all, round {round}: {ran:?}");
        let by_client = |client: &String| commands.iter().filter(|it| *it == client).count();
        let most = commands.iter().map(by_client).max().unwrap_or(0);
        assert!(most <= 12 && sent <= 12 * names.len(), "{sent} commands, {most} of one process");
    }
    drop(children);
}

/// Who has sent each command, those of scripts not counted.
fn sent(monitor: &testbed::Monitor) -> Vec<String> {
    let lines = monitor.lines();
    let client = |line: &String| {
        let (_, rest) = line.split_once('[')?;
        let (client, _) = rest.split_once(']')?;
        (!client.ends_with("lua")).then(|| client.to_owned())
    };
    lines.iter().filter_map(client).collect()
}
