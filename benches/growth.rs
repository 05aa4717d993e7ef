//! How the time of calls grows with what a process has: for `n` and for `4 n`, as a factor.
//!
//! Four times as much may take a little more than four times as long. Ends with an error where a factor is
//! above its bound: then something looks at all the others each time.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, LockRequest, Locks};
use testbed::Server;

/// A machine that is busy with other things takes twice as long now and then.
const MOST: f64 = 9.0;

const ROUNDS: usize = 3;

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, LockError>>>>;

/// A call that waits.
fn waiting(request: LockRequest) -> Waiting {
    let mut waiting: Waiting = Box::pin(request.acquire());
    let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the lock is free");
    waiting
}

/// Calls with `max_waiters` for other locks, beside many that are held, after one for several keys.
fn calls_beside_held_locks(held: usize) -> Duration {
    let locks = Locks::in_memory();
    drop(locks.all(["a", "b"]).blocking_acquire().expect("they are free"));
    let take =
        |number| locks.mutex(format!("held{number}")).blocking_acquire().expect("it is free");
    let guards: Vec<_> = (0..held).map(take).collect();
    let start = Instant::now();
    // As many calls as there are locks, so that the time grows by four if a call takes as long.
    for number in 0..held {
        let request = locks.mutex(format!("other{number}")).max_waiters(10);
        drop(request.blocking_acquire().expect("it is free"));
    }
    let took = start.elapsed();
    drop(guards);
    took
}

fn waiting_calls_for(request: impl Fn(&Locks) -> LockRequest, calls: usize) -> Duration {
    let locks = Locks::in_memory();
    let held = request(&locks).blocking_acquire().expect("it is free");
    let start = Instant::now();
    let all: Vec<_> = (0..calls)
        .map(|_| waiting(request(&locks).wait_forever().max_waiters(1_000_000)))
        .collect();
    let took = start.elapsed();
    drop(all);
    drop(held);
    took
}

fn waiting_calls_for_permits(calls: usize) -> Duration {
    waiting_calls_for(|locks| locks.permit("k", 1), calls)
}

fn waiting_calls_for_several_keys(calls: usize) -> Duration {
    waiting_calls_for(|locks| locks.all(["a", "b"]), calls)
}

/// Guards that are dropped while the server does not answer: more than the buffers of a socket take, because up
/// to that many are written at once.
fn guards_without_answers(guards: usize) -> Duration {
    let server = Server::start();
    let locks = Locks::open(server.url()).expect("locks");
    let take = |number| {
        let request = locks.mutex(format!("k{number}")).ttl(Duration::from_secs(60));
        request.blocking_acquire().expect("it is free")
    };
    let guards: Vec<_> = (0..guards).map(take).collect();
    server.freeze();
    let start = Instant::now();
    drop(guards);
    let took = start.elapsed();
    server.thaw();
    locks.blocking_shutdown();
    took
}

/// Whether the time for `4 n` is within the bound of that for `n`.
fn grows(name: &str, n: usize, run: impl Fn(usize) -> Duration) -> bool {
    let best = |n| (0..ROUNDS).map(|_| run(n)).min().unwrap_or_default().as_secs_f64();
    let (few, many) = (best(n), best(4 * n));
    let factor = many / few;
    println!(
        "{name}: {n} in {:.1} ms, {} in {:.1} ms: {factor:.1} x",
        few * 1e3,
        4 * n,
        many * 1e3
    );
    factor <= MOST
}

fn main() -> ExitCode {
    let are_within = [
        grows("calls beside held locks", 4_000, calls_beside_held_locks),
        grows("waiting calls for permits", 2_000, waiting_calls_for_permits),
        grows("waiting calls for several keys", 2_000, waiting_calls_for_several_keys),
        grows("guards without answers", 6_000, guards_without_answers),
    ];
    if are_within.iter().all(|is_within| *is_within) {
        return ExitCode::SUCCESS;
    }
    eprintln!("a factor is above {MOST}");
    ExitCode::FAILURE
}
