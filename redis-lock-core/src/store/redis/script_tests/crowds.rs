//! No call of a script blocks a server for long, however many hold or wait.

use std::time::Duration;

use redis::Commands;
use testbed::Server;

use super::{is_held, seen};
use crate::domain::kind::Kind;
use crate::store::redis::test_direct::{Direct, acquire, names, release, token};
use crate::store::{Answer, Verb};

/// How long the call of a script took that is in the log, in microseconds.
fn logged(direct: &Direct) -> u64 {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let entries: Vec<Entry> = direct.server.run("SLOWLOG GET 100");
    let scripts = entries.iter().filter(|entry| entry.3[0].starts_with("EVAL"));
    scripts.map(|entry| entry.2).max().unwrap_or(0)
}

/// How long the server has computed so far, in microseconds.
fn computed(direct: &Direct) -> u64 {
    let info: String = direct.server.run("INFO cpu");
    let seconds = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    };
    let both = seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread");
    Duration::from_secs_f64(both).as_micros().try_into().unwrap()
}

/// How many commands the server has executed since its statistics were reset, those of scripts included.
fn executed(direct: &Direct) -> u64 {
    let info: String = direct.server.run("INFO commandstats");
    let calls = info.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    calls.map(|calls| calls.parse::<u64>().unwrap()).sum()
}

/// How long this server takes now for a script of a thousand small commands, in microseconds.
fn thousand(direct: &mut Direct) -> u64 {
    let script = "for _ = 1, 1000 do redis.call('EXISTS', KEYS[1]) end";
    let runs = (0..5).map(|_| {
        let before = computed(direct);
        redis::cmd("EVAL").arg(script).arg(1).arg("none").exec(&mut direct.connection).unwrap();
        computed(direct) - before
    });
    let mut runs: Vec<u64> = runs.collect();
    runs.sort_unstable();
    runs[runs.len() / 2].max(1)
}

/// Calls the same thing until it has had its effect. No call may execute more commands than `LIMIT`. Returns how
/// long the calls took, counted in small commands that the server executes in that time: half of the calls took
/// at most this long, and none took [`SPIKE`] times as long. A machine with other work makes some call take
/// long. What the log says is more where other programs want the same processor, and what the server has
/// computed is more where it did other things besides: the smaller one counts.
fn until(direct: &mut Direct, what: &str, mut once: impl FnMut(&mut Direct) -> bool) -> u64 {
    let (mut times, mut most, mut slowest, mut done) = (Vec::new(), 0, 0, false);
    while !done {
        direct.server.run::<()>("SLOWLOG RESET");
        direct.server.run::<()>("CONFIG RESETSTAT");
        let before = computed(direct);
        done = once(direct);
        let (computed, logged) = (computed(direct) - before, logged(direct));
        most = most.max(executed(direct));
        times.push(computed.min(logged));
        slowest = slowest.max(logged);
        assert!(times.len() < 10_000, "{what} comes to no end");
    }
    let thousand = thousand(direct);
    times.sort_unstable();
    let (calls, median, longest) = (times.len(), times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{what}: {calls} calls of {median} us and at most {most} commands; the longest in SLOWLOG {slowest} us; \
         a thousand commands {thousand} us"
    );
    assert!(most < LIMIT, "{what}: {most} commands in one call");
    median.max(longest / SPIKE) * 1_000 / thousand
}

/// Several tries, each on a fresh server, because a server that has just freed much memory is slow
/// for a while.
fn is_quick(what: &str, scene: impl Fn(&mut Direct) -> u64) {
    for binary in Direct::binaries() {
        let fresh = || {
            let mut direct = Direct::start(Server::builder().binary(binary.clone()));
            direct.server.run::<()>("CONFIG SET slowlog-log-slower-than 0");
            scene(&mut direct)
        };
        println!("{binary}");
        let within = (0..TRIES).any(|_| fresh() < LIMIT);
        assert!(within, "{what}: longer than {LIMIT} small commands take, {TRIES} times in a row");
    }
}

/// How much longer than `LIMIT` one of several hundred calls may take.
const SPIKE: u64 = 3;

/// How many tries a busy machine may spoil.
const TRIES: usize = 12;

/// The longest time for which a script may block the server, in small commands that it executes meanwhile:
/// some 2 ms where nothing else runs. A busy machine slows both down.
const LIMIT: u64 = 4_000;

const CROWD: usize = 10_000;

fn in_a_day(direct: &Direct) -> u64 {
    let (seconds, _): (u64, u64) = direct.server.run("TIME");
    (seconds + 3_600) * 1_000
}

/// Lets many of another manager wait at `channel`, all at once.
fn crowd(direct: &mut Direct, sort: &str, channel: &str) {
    let end = in_a_day(direct);
    for some in (10..CROWD + 10).collect::<Vec<_>>().chunks(500) {
        let mut pipe = redis::pipe();
        for number in some {
            let (token, place) =
                (token(*number).replace(".a.", ".b."), format!("{end}{sort} {channel}"));
            pipe.zadd(names().queue(), &token, *number).ignore();
            pipe.hset(names().waiters(), &token, place).ignore();
        }
        let () = pipe.query(&mut direct.connection).unwrap();
    }
    for side in [names().queue(), names().waiters()] {
        let () = direct.connection.pexpire(side, 3_600_000).unwrap();
    }
}

/// Adds readers whose leases end after this number of milliseconds.
fn readers(direct: &mut Direct, end: u64) {
    for some in (10..CROWD + 10).collect::<Vec<_>>().chunks(500) {
        let mut pipe = redis::pipe();
        for number in some {
            pipe.zadd("lock:a", format!("r:{}", token(*number)), end).ignore();
        }
        let () = pipe.query(&mut direct.connection).unwrap();
    }
}

fn waiting(direct: &mut Direct) -> usize {
    direct.connection.zcard(names().queue()).unwrap()
}

#[test]
fn no_release_and_no_acquisition_blocks_a_server_over_dead_waiters() {
    let one = Kind::Permit { limit: 1 };
    for (kind, sort) in [(Kind::Mutex, ""), (Kind::Write, "/w0"), (one, "/p1")] {
        is_quick("dead waiters", |direct| {
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            crowd(direct, sort, "lock:~m:dead");
            let release = until(direct, "a release over dead waiters", |direct| {
                direct.ask(kind, release(1)).unwrap() == Answer::Done
            });
            let acquire = until(direct, "an acquisition behind dead waiters", |direct| {
                is_held(&direct.ask(kind, acquire(2, true)).unwrap())
            });
            assert_eq!(waiting(direct), 0);
            release.max(acquire)
        });
    }
}

#[test]
fn no_call_blocks_a_server_that_lets_many_readers_in() {
    is_quick("readers", |direct| {
        assert!(is_held(&direct.ask(Kind::Write, acquire(1, false)).unwrap()));
        crowd(direct, "/r0", "-");
        until(direct, "letting readers in", |direct| {
            let _ = direct.ask(Kind::Write, release(1)).unwrap();
            waiting(direct) == 0
        })
    });
}

#[test]
fn no_look_and_no_force_blocks_a_server_with_many_readers() {
    is_quick("looking at readers and ending them", |direct| {
        let end = in_a_day(direct);
        readers(direct, end);
        direct.server.run::<()>(&format!("PEXPIREAT lock:a {end}"));
        let look = until(direct, "a look at readers", |direct| {
            let seen = seen(direct);
            seen.holders.len() + seen.more_holders == CROWD
        });
        let force = until(direct, "ending readers by force", |direct| {
            let seen = seen(direct);
            let tokens: Vec<_> = seen.holders.iter().map(|one| one.token.clone()).collect();
            let tokens = tokens[..tokens.len().min(crate::store::MOST_FORCED)].to_vec();
            let rest = seen.holders.len() + seen.more_holders - tokens.len();
            let force = Verb::Force { tokens, foreign: None, because: "all of them".into() };
            assert_eq!(direct.ask(Kind::Mutex, force).unwrap(), Answer::Done);
            rest == 0
        });
        assert!(!direct.server.exists("lock:a"));
        look.max(force)
    });
}

#[test]
fn leases_that_are_over_block_no_server() {
    is_quick("leases that are over", |direct| {
        let (seconds, _): (u64, u64) = direct.server.run("TIME");
        readers(direct, seconds * 1_000 - 1);
        let end = in_a_day(direct);
        direct.server.run::<()>(&format!("PEXPIREAT lock:a {end}"));
        until(direct, "a writer behind leases that are over", |direct| {
            is_held(&direct.ask(Kind::Write, acquire(3, true)).unwrap())
        })
    });
}
