//! `run`, `extend` and `verify`, dropped after every number of polls: no key, no waiter and no
//! renewal is left. (`acquire` and `release` are in the files on their own faults: rows A2, B3.)

use redis_locks::Guard;
use testbed::{Proxy, Server, cancel_at, cancel_in_flight, eventually, holds_for};
use tokio::time::{sleep, timeout};

use crate::support::*;

const DELAYS: [u64; 3] = [0, 5, 50];

async fn run_dropped_at_any_await_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let monitor = server.monitor();
    for delay in DELAYS {
        proxy.delay_up(ms(delay));
        for polls in 0..200 {
            let body = async |_: &Guard| {
                sleep(ms(2)).await;
                tokio::task::yield_now().await;
            };
            let early = cancel_in_flight(polls, job(&locks).run(body)).await;
            eventually(SOON, "dropped in flight, nothing is left", || server.keys().is_empty());
            let late = timeout(PATIENCE, cancel_at(polls, job(&locks).run(body))).await.unwrap();
            eventually(SOON, "dropped late, nothing is left", || server.keys().is_empty());
            if let (Some(early), Some(late)) = (early, late) {
                early.and(late).unwrap();
                break;
            }
            assert!(polls < 199, "a run that never ends");
        }
    }
    // A release that was sent twice may still be on its slow way.
    until_quiet(&monitor, ms(300));
    server.assert_clean();
}

async fn a_question_dropped_at_any_await_leaves_the_lock_held() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for delay in DELAYS {
        proxy.delay_up(ms(delay));
        let guard = job(&locks).acquire().await.unwrap();
        for polls in 0..100 {
            let verified = cancel_at(polls, guard.verify()).await;
            let extended = cancel_in_flight(polls, guard.extend(LONG)).await;
            assert!(guard.is_held());
            if let (Some(verified), Some(extended)) = (verified, extended) {
                verified.and(extended).unwrap();
                break;
            }
            assert!(polls < 99, "a question that is never answered");
        }
        guard.verify().await.unwrap();
        assert_eq!(server.get(WIRE), Some(guard.token().to_string()));
        // Released with questions still on their way.
        drop(cancel_in_flight(1, guard.extend(LONG)).await);
        drop(guard);
        eventually(SOON, "nothing is left", || server.keys().is_empty());
        holds_for(ms(150), "nothing comes back", || server.keys().is_empty());
    }
    server.assert_clean();
}

by_ways!((usual, by_transactions) on 1 threads:
    run_dropped_at_any_await_leaves_nothing,
    a_question_dropped_at_any_await_leaves_the_lock_held,
);
