//! Each call ends when it promised to, whatever the server does.

use std::time::{Duration, Instant};

use redis_locks::LockError;
use testbed::{Proxy, Server, Turns, eventually};

use crate::support::*;

/// How long a command may take here: long, so that a call that takes twice as long stands out from
/// one that a busy machine delays.
const TIMEOUT: Duration = ms(2000);

/// What a busy machine may add to a bound.
const BUSY: Duration = ms(1200);

async fn a_release_on_a_frozen_server_ends_in_time() {
    let server = Server::start();
    let locks = connect_with(&server.url(), TIMEOUT).await;
    let guard = job(&locks).acquire().await.unwrap();
    let mut others = Vec::new();
    for number in 0..2 {
        others.push(locks.mutex(format!("other{number}")).ttl(LONG).acquire().await.unwrap());
    }
    server.freeze();
    let start = Instant::now();
    let outcome = guard.release().await;
    let took = start.elapsed();
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    assert!(took <= TIMEOUT + BUSY, "{took:?}");
    // Those that come later have a bound of their own, though others are in the way.
    for guard in others {
        let start = Instant::now();
        let outcome = guard.release().await;
        let took = start.elapsed();
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
        assert!(took <= TIMEOUT + BUSY, "{took:?}");
    }
    server.thaw();
    let is_lock = |key: &String| !key.contains(":~x:");
    eventually(PATIENCE, "all is given back", || !server.keys().iter().any(is_lock));
    server.assert_clean();
}

async fn a_try_on_a_slow_path_ends_in_time() {
    const SLOW: Duration = ms(1800);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect_with(&proxy.url(), TIMEOUT).await;
    // Another client has it, so that the first answer alone says nothing.
    let others = connect(&server.url()).await;
    let theirs = job(&others).acquire().await.unwrap();
    proxy.delay_up(SLOW / 2);
    proxy.delay_down(SLOW / 2);
    for _ in 0..2 {
        let start = Instant::now();
        let outcome = locks.mutex(KEY).ttl(LONG).try_acquire().await;
        let took = start.elapsed();
        assert!(took <= TIMEOUT + BUSY, "{took:?}: {outcome:?}");
        assert!(matches!(outcome, Ok(None) | Err(LockError::Backend { .. })), "{outcome:?}");
    }
    theirs.release().await.unwrap();
    let start = Instant::now();
    let outcome = locks.mutex("free").ttl(LONG).try_acquire().await;
    let took = start.elapsed();
    assert!(took <= TIMEOUT + BUSY, "{took:?}: {outcome:?}");
    assert!(matches!(outcome, Ok(Some(_))), "an answer after 1.8 s is in time: {outcome:?}");
    proxy.pass();
    drop(outcome);
    locks.shutdown().await;
    let is_lock = |key: &String| !key.contains(":~x:");
    eventually(PATIENCE, "all is given back", || !server.keys().iter().any(is_lock));
    server.assert_clean();
}

/// The callers of one process, on a server that answers each command, and takes its time.
async fn waits_on_a_slow_path_end_in_time_and_as_busy() {
    const SLOW: Duration = ms(400);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect_with(&proxy.url(), TIMEOUT).await;
    proxy.delay_up(SLOW / 2);
    proxy.delay_down(SLOW / 2);
    for (wait, body) in [(ms(1000), ms(200)), (ms(100), ms(200)), (ms(1000), ms(700))] {
        let mut turns = Turns::of("each ends within its wait, one round trip and 100 ms");
        while turns.go_on() {
            let calls = (0..10).map(|_| {
                let request = locks.mutex(KEY).ttl(LONG).wait(wait);
                tokio::spawn(async move {
                    let start = Instant::now();
                    let outcome = request.acquire().await;
                    let took = start.elapsed();
                    let error = match outcome {
                        Ok(guard) => {
                            tokio::time::sleep(body).await;
                            guard.release().await.err()
                        }
                        Err(error) => Some(error),
                    };
                    (took, error)
                })
            });
            let mut outcome = Ok(());
            for call in calls.collect::<Vec<_>>() {
                let (took, error) = call.await.unwrap();
                assert!(error.as_ref().is_none_or(LockError::is_busy), "{error:?}");
                if took > wait + SLOW + ms(100) {
                    outcome = Err(format!("a wait of {wait:?} took {took:?}, {error:?}"));
                }
            }
            turns.end(outcome);
        }
    }
    proxy.pass();
    locks.shutdown().await;
    server.assert_clean();
}

both_paths!(
    on 2 threads:
    a_release_on_a_frozen_server_ends_in_time,
    a_try_on_a_slow_path_ends_in_time,
    waits_on_a_slow_path_end_in_time_and_as_busy,
);
