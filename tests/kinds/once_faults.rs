//! What is done once, where processes die, replies are lost and servers forget.

use std::time::{Duration, Instant};

use redis_locks::{LockError, LockRequest, Locks, redis};
use testbed::{Child, ChildIo, Proxy, Server, Turns, eventually};

use crate::arena::{PATIENCE, is_free, ms, take};

const HOUR: Duration = Duration::from_secs(3_600);

/// The lease of those that die.
const LEASE: Duration = ms(1_000);

fn once(locks: &Locks) -> LockRequest {
    locks.mutex("k").once(HOUR).ttl(LEASE)
}

fn is_done(locks: &Locks) -> bool {
    matches!(once(locks).blocking_acquire(), Err(LockError::Done { .. }))
}

fn spawn(role: &str, server: &Server) -> Child {
    Child::spawn(role, &[("SERVER", &server.url())])
}

fn locks_of_child() -> Locks {
    Locks::open(std::env::var("SERVER").unwrap()).unwrap()
}

/// Has had its effect, and never gets to say so.
pub(crate) fn dies(io: &mut ChildIo) {
    let _guard = take(once(&locks_of_child()));
    io.say("the effect is there");
    io.hear();
}

#[test]
fn a_process_that_dies_between_effect_and_mark_has_not_succeeded() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let mut child = spawn("once_dies", &server);
    child.expect("the effect is there");
    child.kill9();
    let died = Instant::now();
    let guard = once(&locks).wait(PATIENCE).blocking_acquire().unwrap();
    assert!(died.elapsed() < LEASE + ms(1_000), "{:?}", died.elapsed());
    guard.blocking_complete().unwrap();
    assert!(is_done(&locks));
}

#[test]
fn a_server_that_forgets_forgets_what_was_done() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    take(once(&locks)).blocking_complete().unwrap();
    assert!(is_done(&locks));
    server.run::<String>("FLUSHALL");
    assert!(is_free(once(&locks)), "it is done again");
    let guard = take(once(&locks));
    server.run::<String>("FLUSHALL");
    let lost = guard.blocking_complete().unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    assert!(is_free(once(&locks)), "no mark is made of nothing");
    server.assert_clean();
}

#[test]
fn a_complete_whose_reply_is_lost_is_done() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let direct = Locks::open(server.url()).unwrap();
    for round in 1..=5 {
        let guard = take(once(&locks));
        proxy.cut_reply_to("lock:k");
        guard.blocking_complete().unwrap();
        assert_eq!(proxy.cuts(), round);
        assert!(is_done(&direct) && is_done(&locks));
        assert!(direct.blocking_force_release("k", "again").unwrap());
    }
    server.assert_clean();
}

#[test]
fn a_full_server_still_notes_what_was_done() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let guard = take(once(&locks));
    let kept = take(locks.mutex("kept").min_hold(HOUR));
    server.run::<String>("CONFIG SET maxmemory 1");
    guard.blocking_complete().unwrap();
    kept.blocking_release().unwrap();
    server.run::<String>("CONFIG SET maxmemory 0");
    assert!(is_done(&locks));
    assert!(locks.blocking_status("kept").unwrap().kept_until.is_some());
}

/// Waits, and says what it hears.
pub(crate) fn waits(io: &mut ChildIo) {
    let locks = locks_of_child();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let request = once(&locks);
            std::thread::spawn(move || request.blocking_try_run(|_| Ok::<_, LockError>(())))
        })
        .collect();
    io.say("waiting");
    let ends: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
    let done = ends.iter().filter(|end| matches!(end, Err(LockError::Done { .. }))).count();
    let ran = ends.iter().filter(|end| end.is_ok()).count();
    io.say(&format!("heard ran {ran} done {done}"));
    io.hear();
}

#[test]
fn one_waiter_of_three_processes_runs_and_the_others_get_done() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    for is_done_here in [true, false] {
        let mut turns = Turns::of("they hear of it by a push");
        while turns.go_on() {
            let guard = take(once(&locks).ttl(ms(30_000)));
            let mut children = [(); 3].map(|()| spawn("once_waits", &server));
            children.iter_mut().for_each(|child| drop(child.expect("waiting")));
            let queued = || locks.blocking_status("k").unwrap().waiters.len() == 3;
            eventually(PATIENCE, "each process waits", queued);
            let begun = Instant::now();
            match is_done_here {
                true => guard.blocking_complete().unwrap(),
                false => guard.blocking_release().unwrap(),
            }
            let heard: Vec<_> = children.iter_mut().map(|child| child.expect("heard")).collect();
            let took = begun.elapsed();
            let count = |what: &str| heard.iter().filter(|said| said.contains(what)).count();
            let ran = usize::from(!is_done_here);
            assert_eq!((count("ran 1 done 2"), count("ran 0 done 3")), (ran, 3 - ran), "{heard:?}");
            assert!(locks.blocking_force_release("k", "again").unwrap());
            turns.must_be_below(ms(900), took);
        }
    }
    server.assert_clean();
}

/// How many processes start a job at the same time.
const PROCESSES: usize = 50;

/// How many tries of each job fail. The one after these dies in every second round.
const FAILURES: i64 = 2;

/// Runs the job of each round that it hears of until it is done.
pub(crate) fn works(io: &mut ChildIo) {
    let locks = locks_of_child();
    let client = redis::Client::open(std::env::var("SERVER").unwrap()).unwrap();
    let mut store = client.get_connection().unwrap();
    loop {
        let round: u32 = io.hear().parse().unwrap();
        let request = locks.mutex(format!("job:{round}")).once(HOUR).ttl(LEASE).fenced();
        let mut run = |cmd: &str, key: &str, arg: Option<u64>| {
            redis::cmd(cmd).arg(format!("{key}:{round}")).arg(arg).query::<i64>(&mut store).unwrap()
        };
        loop {
            let outcome = request.clone().blocking_try_run(|guard| {
                let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
                run("RPUSH", "began", u64::try_from(now).ok());
                let number = run("INCR", "tries", None);
                if number <= FAILURES {
                    return Err(LockError::NotConfigured);
                }
                if number == FAILURES + 1 && round.is_multiple_of(2) {
                    run("RPUSH", "dead", Some(u64::from(std::process::id())));
                    std::process::abort();
                }
                run("RPUSH", "effects", guard.fence());
                Ok(())
            });
            match outcome {
                Err(LockError::NotConfigured) => {}
                Ok(()) | Err(LockError::Done { .. }) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        io.say(&format!("ended {round}"));
    }
}

#[test]
#[ignore = "it takes a minute; `cargo xtask ci slow-tests` runs it"]
fn fifty_processes_have_one_success_a_round_whatever_fails_before() {
    let server = Server::start();
    let mut children: Vec<_> = (0..PROCESSES).map(|_| spawn("once_works", &server)).collect();
    for round in 1..=20 {
        children.iter_mut().for_each(|child| child.tell(&round.to_string()));
        let count = |what: &str, of: &str| server.run::<i64>(&format!("{what} {of}:{round}"));
        eventually(PATIENCE, "it has succeeded", || count("LLEN", "effects") > 0);
        let dies = round % 2 == 0;
        if dies {
            let dead: u32 = server.run(&format!("LINDEX dead:{round} 0"));
            children.retain(|child| child.pid() != dead);
            assert_eq!(children.len(), PROCESSES - 1);
        }
        for child in &mut children {
            child.expect(&format!("ended {round}"));
        }
        let tries = FAILURES + 1 + i64::from(dies);
        assert_eq!(count("LLEN", "effects"), 1, "round {round}");
        assert_eq!(count("LLEN", "began"), tries, "no process runs after a success, round {round}");
        let began: Vec<u64> = server.run(&format!("LRANGE began:{round} 0 -1"));
        for (index, pair) in began.windows(2).enumerate() {
            let after_death = dies && index as i64 == FAILURES;
            let most = if after_death { LEASE + ms(1_000) } else { ms(1_000) };
            let pause = Duration::from_millis(pair[1] - pair[0]);
            assert!(pause < most, "round {round}, try {}: {pause:?}", index + 2);
        }
        if dies {
            children.push(spawn("once_works", &server));
        }
    }
}
