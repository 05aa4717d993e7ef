//! More waiters of one process for one lock than queue at the server: also those who are held back come to
//! their turn, whatever becomes of messages and of the server's data.

#[path = "../support/line.rs"]
mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, LockRequest, Locks, LossReason};
use testbed::{Server, ServerBuilder, eventually};
use tokio::task::JoinSet;

use self::line::*;
use crate::support::*;

/// The places of those who wait for [`KEY`], on the server.
const WAITERS: &str = "lock:{lock:job}:~w";

/// All rights, but messages that are sent reach no channel.
const MUTE: &str = "app on >secret ~* &* +@all -publish -spublish";

/// No waiter is told of its turn: each look lets in those whose turn it is by then, and those at the front
/// look each second.
const SERVED_WITHOUT_MESSAGES: Duration = ms(12_000);

fn permit(locks: &Locks) -> LockRequest {
    locks.permit(KEY, LIMIT).ttl(LONG).wait(PATIENCE)
}

/// Managers of a user who may not publish, whose waiters count as alive because they listen.
fn mute_managers(server: &Server) -> [Locks; 2] {
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    [(); 2].map(|()| Locks::open(&url).unwrap())
}

/// Returns when messages would reach these managers: waiters that come before that lose their places.
async fn until_heard(server: &Server, managers: &[&Locks]) {
    for locks in managers {
        locks.mutex("other").acquire().await.unwrap().release().await.unwrap();
    }
    eventually(PATIENCE, "all listen", || {
        let channels: Vec<String> = server.run("PUBSUB CHANNELS *");
        let sharded: Vec<String> = server.run("PUBSUB SHARDCHANNELS *");
        channels.len().max(sharded.len()) == managers.len()
    });
}

/// Has a line served up to three times, until all goes well: on a busy machine a waiter may look too late.
async fn must_go_well(what: &str, mut serve: impl AsyncFnMut() -> Result<(), String>) {
    let mut seen = String::new();
    for _ in 0..3 {
        match serve().await {
            Ok(()) => return,
            Err(wrong) => seen = wrong,
        }
    }
    panic!("not so in three times: {what}; {seen}");
}

/// Has it served in the order of its coming.
async fn must_come_in_order(mut serve: impl AsyncFnMut() -> Served) {
    must_go_well("no waiter waits longer than those who came later", async || {
        let served = serve().await;
        served.is_in_order().then_some(()).ok_or_else(|| format!("{:?}", served.order()))
    })
    .await;
}

async fn b9_many_waiters_who_get_no_messages_are_served_in_their_order(builder: ServerBuilder) {
    let server = builder.user(MUTE).start();
    let [holder, locks] = mute_managers(&server);
    until_heard(&server, &[&holder, &locks]).await;
    must_come_in_order(async || {
        let held = take_all(permit(&holder)).await;
        let line = Line::of((0..WAITING).map(|_| permit(&locks))).await;
        until_all_have_looked(&server, WAITERS);
        free(held).await;
        line.all_served(SERVED_WITHOUT_MESSAGES).await
    })
    .await;
    drop((holder, locks));
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_many_waiters_whose_subscription_is_cut_all_the_time_are_served() {
    let server = Server::start();
    let (holder, locks) = (manager(&server), manager(&server));
    must_go_well("they look whenever messages arrive again", async || {
        until_heard(&server, &[&holder, &locks]).await;
        let held = take_all(permit(&holder)).await;
        let line = Line::of((0..WAITING).map(|_| permit(&locks))).await;
        until_all_have_looked(&server, WAITERS);
        let mut connection = server.client().get_connection().unwrap();
        let cuts = Steadily::each(ms(100), move || {
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec(&mut connection).unwrap();
        });
        free(held).await;
        let start = Instant::now();
        line.all_served(SERVED_WITHOUT_MESSAGES).await;
        cuts.stop();
        let took = start.elapsed();
        if took < ms(1_000) { Ok(()) } else { Err(format!("it took {took:?}")) }
    })
    .await;
    drop((holder, locks));
    server.assert_clean();
}

/// How many readers are in; -1 for a writer.
#[derive(Clone, Default)]
struct Hall(Arc<AtomicIsize>);

impl Hall {
    fn enter(&self, writes: bool) {
        let before = self.0.fetch_add(if writes { -1 } else { 1 }, Ordering::SeqCst);
        let alone = before == 0;
        assert!(alone || before > 0 && !writes, "{before} were in (writes: {writes})");
    }

    fn leave(&self, writes: bool) {
        self.0.fetch_add(if writes { 1 } else { -1 }, Ordering::SeqCst);
    }
}

async fn l3_readers_and_writers_behind_many_keep_their_places_and_exclude_each_other(
    builder: ServerBuilder,
) {
    let server = builder.start();
    let (holder, locks) = (manager(&server), manager(&server));
    until_heard(&server, &[&holder, &locks]).await;
    let held = holder.write(KEY).ttl(LONG).acquire().await.unwrap();
    let (hall, served) = (Hall::default(), Served::default());
    let writes = |number: usize| number >= 36 && number.is_multiple_of(3);
    let mut tasks = JoinSet::new();
    for number in 0..WAITING {
        let request = if writes(number) { locks.write(KEY) } else { locks.read(KEY) };
        let asking = ask(request.ttl(LONG).wait(PATIENCE)).await;
        let (hall, served) = (hall.clone(), served.clone());
        tasks.spawn(async move {
            let guard = asking.await.unwrap();
            hall.enter(writes(number));
            served.note(number);
            tokio::time::sleep(ms(5)).await;
            hall.leave(writes(number));
            guard.release().await.unwrap();
        });
    }
    until_all_have_looked(&server, WAITERS);
    held.release().await.unwrap();
    // With messages it is a matter of milliseconds for each.
    let all = tokio::time::timeout(ms(6_000), tasks.join_all()).await;
    let order = served.order();
    assert!(all.is_ok(), "only these were served: {order:?}");
    let of_writers = (0..WAITING).filter(|number| writes(*number));
    assert!(of_writers.clone().all(|number| order[number] == number), "in their order: {order:?}");
    drop((holder, locks));
    server.assert_clean();
}

/// How long those wait who give up.
const BRIEFLY: Duration = ms(2_000);

/// How many stay.
const STAY: usize = 32;

/// What an acquisition came to, and when.
type GaveUp = JoinSet<(Result<Guard, LockError>, Duration)>;

async fn give_up(waiting: &mut GaveUp, count: usize, request: &LockRequest) {
    for _ in 0..count {
        let (start, asking) = (Instant::now(), ask(request.clone()).await);
        waiting.spawn(async move { (asking.await, start.elapsed()) });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i9_waiters_that_give_up_leave_their_places_to_the_others() {
    let server = Server::builder().user(MUTE).start();
    let [holder, locks] = mute_managers(&server);
    until_heard(&server, &[&holder, &locks]).await;
    must_come_in_order(async || {
        let held = take_all(permit(&holder)).await;
        let (mut brief, request) = (JoinSet::new(), permit(&locks).wait(BRIEFLY));
        // All that queue at the server, and some behind them.
        give_up(&mut brief, 40, &request).await;
        let line = Line::of((0..STAY).map(|_| permit(&locks))).await;
        give_up(&mut brief, WAITING - 40 - STAY, &request).await;
        while let Some(outcome) = brief.join_next().await {
            let (outcome, took) = outcome.unwrap();
            assert!(outcome.as_ref().is_err_and(LockError::is_busy), "{outcome:?}");
            assert!((BRIEFLY..BRIEFLY * 2).contains(&took), "it waited for {took:?}");
        }
        until_queued(&server, STAY as u64);
        let places: usize = server.run(&format!("HLEN {WAITERS}"));
        assert_eq!(places, STAY, "nothing is left of the others");
        free(held).await;
        line.all_served(SERVED_WITHOUT_MESSAGES).await
    })
    .await;
    drop((holder, locks));
    server.assert_clean();
}

/// How long each may hold its permit, and stays in longer.
const MOST: Duration = ms(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_many_waiters_follow_those_whose_time_is_over() {
    let server = Server::builder().user(MUTE).start();
    let [holder, locks] = mute_managers(&server);
    until_heard(&server, &[&holder, &locks]).await;
    let request = permit(&locks).max_hold(MOST);
    let held = take_all(permit(&holder)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..WAITING {
        let asking = ask(request.clone()).await;
        tasks.spawn(async move {
            let guard = asking.await.unwrap();
            assert!(guard.remaining() <= MOST);
            let start = Instant::now();
            assert_eq!(guard.lost().await, LossReason::HoldLimit);
            (start.elapsed(), guard)
        });
    }
    until_all_have_looked(&server, WAITERS);
    free(held).await;
    let all = tokio::time::timeout(SERVED_WITHOUT_MESSAGES, tasks.join_all()).await;
    // Guards that are not released: they are lost, and nothing is kept for them.
    let stays: Vec<_> = all.expect("all are served").into_iter().collect();
    assert!(stays.iter().all(|(stay, _)| *stay < MOST * 4), "none is in for longer");
    server.assert_clean();
    drop(stays);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_are_served_by_a_server_that_has_lost_all_data() {
    let server = Server::start();
    let (holder, locks) = (manager(&server), manager(&server));
    until_heard(&server, &[&holder, &locks]).await;
    let held = take_all(permit(&holder)).await;
    let line = Line::of((0..WAITING).map(|_| permit(&locks))).await;
    until_all_have_looked(&server, WAITERS);
    server.run::<()>("FLUSHALL");
    // Those who have looked are let in or queue anew.
    line.all_served(ms(8_000)).await;
    drop((held, holder, locks));
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_all_who_wait_are_told_of_an_outage_at_the_same_time_and_are_seen_to_wait() {
    const OUTAGE: Duration = ms(1_500);
    let server = Server::start();
    let (holder, locks) = (manager(&server), manager(&server));
    let held = take_all(permit(&holder)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..WAITING {
        let asking = ask(permit(&locks).outage(OUTAGE)).await;
        tasks.spawn(asking);
    }
    until_all_have_looked(&server, WAITERS);
    assert_eq!(locks.status(KEY).await.unwrap().waiters.len(), WAITING);
    server.kill9();
    let start = Instant::now();
    for outcome in tasks.join_all().await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    }
    let took = start.elapsed();
    assert!((OUTAGE / 2..OUTAGE + ms(2_500)).contains(&took), "it took {took:?}");
    drop(held);
}

on_both_servers!(
    b9_many_waiters_who_get_no_messages_are_served_in_their_order,
    l3_readers_and_writers_behind_many_keep_their_places_and_exclude_each_other,
);
