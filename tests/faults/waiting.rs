//! Waiting for a lock while messages are lost, holders die, and other waiters give up.

use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, Locks};
use testbed::{Child, ChildIo, Proxy, Server, Turns, cancel_at, eventually};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// By then a waiter has looked by itself, with or without a message.
const POLLED: Duration = ms(2500);

/// For how long the looks of a waiter are counted.
const COUNTED: Duration = ms(4000);

type Waiting = JoinHandle<Result<Guard, LockError>>;

async fn start_waiting(server: &Server, locks: &Locks) -> Waiting {
    let waiting = tokio::spawn(job(locks).wait(PATIENCE).acquire());
    until_queued(server).await;
    assert!(!waiting.is_finished(), "there is nothing to wait for");
    waiting
}

/// Releases, and returns how long it took the waiter to get the lock.
async fn hand_over(guard: Guard, waiting: Waiting) -> Duration {
    let start = Instant::now();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    let took = start.elapsed();
    next.release().await.unwrap();
    took
}

async fn i1_a_release_before_the_subscription_stands_is_not_missed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let holder = connect(&server.url()).await;
    // Everything that a new manager sends takes 100 ms to arrive, its subscription as well.
    proxy.delay_up(ms(100));
    for lead in [0, 50, 90, 110, 150, 210, 250, 310] {
        let locks = builder(&proxy.url()).open().unwrap();
        let guard = job(&holder).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&locks).wait(PATIENCE).acquire());
        sleep(ms(lead)).await;
        let took = hand_over(guard, waiting).await;
        assert!(took < ms(1500), "{took:?} after a lead of {lead} ms");
    }
    server.assert_clean();
}

async fn i2_a_message_lost_with_the_subscription_is_made_up_for() {
    let server = Server::start();
    let (holder, locks) = (connect(&server.url()).await, connect(&server.url()).await);
    for _ in 0..3 {
        let guard = job(&holder).acquire().await.unwrap();
        let waiting = start_waiting(&server, &locks).await;
        until("both listen", || channels(&server) == 2).await;
        server.run::<u64>("CLIENT KILL TYPE pubsub");
        let took = hand_over(guard, waiting).await;
        assert!(took < POLLED, "{took:?}");
    }
    server.assert_clean();
}

/// How many subscriptions were made.
fn subscriptions(server: &Server) -> u64 {
    server.command_counts().get("subscribe").copied().unwrap_or_default()
}

async fn i3_a_half_open_subscription_is_made_up_for() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (holder, locks) = (connect(&server.url()).await, connect(&proxy.url()).await);
    let guard = job(&holder).acquire().await.unwrap();
    let waiting = start_waiting(&server, &locks).await;
    until("both listen", || channels(&server) == 2).await;
    let deaf = proxy.only(|connection| connection.subscriber);
    assert!(deaf.count() > 0, "no client subscribed");
    let before = subscriptions(&server);
    deaf.hole();
    let took = hand_over(guard, waiting).await;
    assert!(took < POLLED, "{took:?}");
    // A heartbeat finds out, and the next message arrives again.
    until("it subscribes again", || subscriptions(&server) > before).await;
    let mut fastest = Fastest::below(NOTIFIED);
    while fastest.needs_turn() {
        let guard = job(&holder).acquire().await.unwrap();
        let waiting = start_waiting(&server, &locks).await;
        fastest.add(hand_over(guard, waiting).await);
    }
    let took = fastest.took();
    assert!(took < NOTIFIED, "{took:?}: no message arrives any more");
    server.assert_clean();
}

/// Holds the lock until it is killed.
pub(crate) fn hold(io: &mut ChildIo) {
    let locks = open(&std::env::var("REDIS_URL").unwrap());
    let guard = locks.mutex(KEY).ttl(ms(1500)).blocking_acquire().unwrap();
    io.say("holding");
    io.hear();
    drop(guard);
}

async fn i4_the_end_of_a_dead_holders_lease_wakes_the_waiter() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let mut turns = Turns::of("the waiter has it when the lease ends");
    while turns.go_on() {
        let mut late = Vec::new();
        for _ in 0..3 {
            let mut child = Child::spawn("waiting_hold", &[("REDIS_URL", &server.url())]);
            child.expect("holding");
            let waiting = start_waiting(&server, &locks).await;
            child.kill9();
            let left = server.pttl(WIRE).expect("the lock outlives its holder");
            let end = Instant::now() + Duration::from_millis(left.try_into().unwrap());
            let guard = waiting.await.unwrap().unwrap();
            late.push(end.elapsed());
            guard.release().await.unwrap();
        }
        // A busy machine may delay one of them. Looks that don't know of the end come at any time of up
        // to a second after it.
        late.sort_unstable();
        turns.must_be_below(ms(200), late[1]);
    }
    server.assert_clean();
}

async fn i5_a_waiter_does_not_hurry_while_the_holder_renews() {
    let server = Server::start();
    let (holder, locks) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut turns = Turns::of("it has the lock as soon as that is released");
    while turns.go_on() {
        // At each end of the lease that the waiter knows of, it has been renewed.
        let guard = holder.mutex(KEY).ttl(ms(300)).acquire().await.unwrap();
        let waiting = start_waiting(&server, &locks).await;
        let token = guard.token().to_string();
        let monitor = server.monitor();
        sleep(COUNTED).await;
        // Only what clients send, not what scripts do; and not the holder's renewals. A transaction that
        // tries begins by watching the queue.
        let is_try = |line: &&String| match is_without_scripts() {
            true => line.contains("\"WATCH\"") && line.contains(":~q"),
            false => line.contains(WIRE) && !line.contains("[0 lua]") && !line.contains(&token),
        };
        let tries = monitor.lines().iter().filter(is_try).count();
        if !guard.is_held() {
            // The waiter has the lock: on a busy machine a renewal may come too late for a lease this short.
            waiting.await.unwrap().unwrap().release().await.unwrap();
            turns.end(Err("it was not renewed in time".into()));
            continue;
        }
        assert!(tries <= 20, "{tries} tries in {COUNTED:?}");
        turns.must_be_below(ms(1000), hand_over(guard, waiting).await);
    }
    server.assert_clean();
}

async fn i7_a_waiter_that_gives_up_at_the_head_passes_its_turn_on() {
    let server = Server::start();
    let (holder, locks) = (connect(&server.url()).await, connect(&server.url()).await);
    for polls in 0..4 {
        for pause in [0, 1, 3] {
            let mut fastest = Fastest::below(NOTIFIED);
            while fastest.needs_turn() {
                let guard = job(&holder).acquire().await.unwrap();
                let request = job(&locks).wait(PATIENCE);
                let head = async move { drop(cancel_at(polls, request.acquire()).await) };
                let head = started(head).await;
                let next = started(job(&locks).wait(PATIENCE).acquire()).await;
                until_queued(&server).await;
                let start = Instant::now();
                guard.release().await.unwrap();
                sleep(ms(pause)).await;
                head.abort();
                let next = timeout(PATIENCE, next).await.expect("the turn was lost");
                let took = start.elapsed();
                next.unwrap().unwrap().release().await.unwrap();
                fastest.add(took);
            }
            let took = fastest.took();
            assert!(took < NOTIFIED, "{took:?} with {polls} polls and a pause of {pause} ms");
        }
    }
    server.assert_clean();
}

async fn i7_the_same_among_tasks_of_one_process() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    for polls in 0..4 {
        let mut fastest = Fastest::below(NOTIFIED);
        while fastest.needs_turn() {
            let guard = job(&locks).acquire().await.unwrap();
            let request = job(&locks).wait(PATIENCE);
            let head = async move { drop(cancel_at(polls, request.acquire()).await) };
            let head = started(head).await;
            let next = started(job(&locks).wait(PATIENCE).acquire()).await;
            let start = Instant::now();
            drop(guard);
            let next = timeout(PATIENCE, next).await.expect("the turn was lost");
            let took = start.elapsed();
            next.unwrap().unwrap().release().await.unwrap();
            head.await.unwrap();
            fastest.add(took);
        }
        let took = fastest.took();
        assert!(took < NOTIFIED, "{took:?} with {polls} polls");
    }
    server.assert_clean();
}

async fn i9_a_wait_is_as_long_as_it_was_said_to_be() {
    let server = Server::start();
    let (holder, locks) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = job(&holder).acquire().await.unwrap();
    for wait in [1, 10, 50, 120, 333, 1100].map(ms) {
        let start = Instant::now();
        let outcome = job(&locks).wait(wait).acquire().await;
        let took = start.elapsed();
        match outcome {
            Err(LockError::Busy { waited, holder: Some(by), .. }) => {
                assert!(waited >= wait && waited <= took, "{waited:?} of {wait:?}");
                assert_eq!(&by.token, guard.token());
            }
            other => panic!("{other:?}"),
        }
        assert!(took >= wait, "{took:?} for a wait of {wait:?}");
        assert!(took < wait + COMMAND + GRACE, "{took:?} for a wait of {wait:?}");
    }
    let start = Instant::now();
    assert!(job(&locks).try_acquire().await.unwrap().is_none());
    assert!(start.elapsed() < COMMAND + GRACE, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    server.assert_clean();
}

#[test]
fn i9_the_same_without_a_runtime() {
    let server = Server::start();
    let (holder, locks) = (open(&server.url()), open(&server.url()));
    let guard = job(&holder).blocking_acquire().unwrap();
    let start = Instant::now();
    let outcome = job(&locks).wait(ms(300)).blocking_acquire();
    assert!(outcome.is_err_and(|error| error.is_busy()));
    assert!(start.elapsed() >= ms(300) && start.elapsed() < ms(300) + COMMAND + GRACE);
    let waiting = thread::spawn({
        let request = job(&locks).wait(PATIENCE);
        move || request.blocking_acquire().unwrap()
    });
    eventually(PATIENCE, "it is queued", || server.exists(QUEUE));
    guard.blocking_release().unwrap();
    waiting.join().unwrap().blocking_release().unwrap();
    eventually(SOON, "nothing is left", || server.keys().is_empty());
    server.assert_clean();
}

by_ways!((usual, by_transactions) on 1 threads:
    i1_a_release_before_the_subscription_stands_is_not_missed,
    i2_a_message_lost_with_the_subscription_is_made_up_for,
    i3_a_half_open_subscription_is_made_up_for,
    i4_the_end_of_a_dead_holders_lease_wakes_the_waiter,
    i5_a_waiter_does_not_hurry_while_the_holder_renews,
    i7_a_waiter_that_gives_up_at_the_head_passes_its_turn_on,
    i7_the_same_among_tasks_of_one_process,
    i9_a_wait_is_as_long_as_it_was_said_to_be,
);
