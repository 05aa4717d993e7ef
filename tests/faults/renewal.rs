//! Keeping a lock while renewals are late, lost or refused, and losing it in time when they
//! cannot succeed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{LockError, LockState, Locks, LossReason};
use testbed::{Child, ChildIo, Proxy, Server, cancel_at, cancel_in_flight, eventually, holds_for};
use tokio::time::sleep;

use crate::support::*;

/// How late after the end of the lease a loss is reported: a tenth of a second is promised, the rest is
/// for a busy machine.
const REPORTED: Duration = Duration::from_millis(1_000);

async fn c1_no_renewal_outlives_the_release() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let monitor = server.monitor();
    // Replies are late, so that at most moments some renewal is on its way.
    proxy.delay_down(ms(40));
    let renewals = || monitor.lines().iter().filter(|line| line.contains("PEXPIRE")).count();
    // Transactions have few connections, on which more would wait for each other.
    let (holders_at_once, rounds) = if is_without_scripts() { (50, 120) } else { (200, 30) };
    for round in 0.. {
        if round >= 5 && renewals() > 300 {
            break;
        }
        assert!(round < rounds, "only {} renewals: too few to show anything", renewals());
        let mut holders = Vec::new();
        for number in 0..holders_at_once {
            let request = locks.mutex(format!("job:{round}:{number}")).ttl(ms(600));
            holders.push(tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                sleep(ms(120 + number * 200 / holders_at_once)).await;
                guard.release().await
            }));
        }
        for holder in holders {
            // On a busy machine an answer takes longer than a lease this short can wait for;
            // then the release goes on without us.
            match holder.await.unwrap() {
                Ok(()) | Err(LockError::Backend { .. }) => {}
                // Without scripts a renewal takes several round trips, each of which may be as late.
                Err(LockError::Lost { .. }) if is_without_scripts() => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        eventually(PATIENCE, "all are released", || server.keys().is_empty());
    }
    holds_for(ms(400), "no key comes back", || server.keys().is_empty());
}

async fn c2_an_acquisition_that_was_dropped_is_not_renewed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    proxy.delay_up(ms(10));
    let request = || locks.mutex(KEY).ttl(ms(300));
    for polls in 0..6 {
        drop(tokio::time::timeout(ms(200), cancel_at(polls, request().acquire())).await);
        drop(cancel_in_flight(polls, request().acquire()).await);
    }
    eventually(SOON, "the key is gone", || !server.exists(WIRE));
    let monitor = server.monitor();
    // Three leases, each of which would have been renewed twice.
    until_quiet(&monitor, ms(900));
    let renewals = monitor.count(r#""PEXPIRE" "lock:job""#);
    assert_eq!(renewals, 0, "it was renewed while what was given up was undone");
    server.assert_clean();
}

async fn c3_a_gap_in_the_network_is_bridged() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(4000)).acquire().await.unwrap();
    for _ in 0..2 {
        proxy.hole();
        eventually(ms(3000), "a missed renewal shows", || guard.state() == LockState::Uncertain);
        assert!(guard.is_held());
        proxy.pass();
        eventually(ms(2000), "it is held again", || guard.state() == LockState::Held);
    }
    holds_for(ms(6000), "it is renewed as before", || guard.is_held());
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn c4_a_lock_that_cannot_be_renewed_is_lost_at_its_own_end() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let ttl = ms(3000);
    let polls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&polls);
    // Set by the body: when the lease ends, as the guard knew it last, and on the server.
    let (mut end, mut end_on_server) = (None, None);
    let (hole, asked) = (&proxy, &server);
    let outcome = locks
        .mutex(KEY)
        .ttl(ttl)
        .run(async |guard| {
            hole.hole();
            let left = asked.pttl(WIRE).expect("it is held");
            end_on_server = Some(Instant::now() + ms(left.try_into().unwrap()));
            loop {
                counter.fetch_add(1, Ordering::SeqCst);
                if guard.is_held() {
                    end = Some(Instant::now() + guard.remaining());
                }
                sleep(ms(5)).await;
            }
        })
        .await;
    let now = Instant::now();
    let end = end.expect("the body has run");
    assert!(
        matches!(outcome, Err(LockError::Lost { reason: LossReason::Expired, .. })),
        "{outcome:?}"
    );
    assert!(now >= end - ms(5), "the body was stopped {:?} early", end - now);
    assert!(now < end + REPORTED, "the body was stopped {:?} late", now - end);
    assert!(Some(end) < end_on_server, "on the server the lock ended before");
    let polled = polls.load(Ordering::SeqCst);
    assert!(polled > 100, "{polled}");
    proxy.pass();
    let is_still = || polls.load(Ordering::SeqCst) == polled;
    stays(WATCHED, "the body is not polled after the loss", is_still).await;
    server.assert_clean();
}

async fn c4_a_frozen_server_is_a_loss_at_the_leases_end() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(1500)).acquire().await.unwrap();
    // So that no renewal is on its way when the server stops.
    until_renewed(&guard).await;
    server.freeze();
    let end = Instant::now() + guard.remaining();
    assert_eq!(loss(&guard).await, LossReason::Expired);
    let now = Instant::now();
    assert!(now < end + REPORTED, "reported {:?} late", now - end);
    assert!(now >= end - ms(5), "reported {:?} early", end - now);
    assert_eq!(guard.state(), LockState::Lost);
    server.thaw();
    holds_for(ms(300), "it stays lost", || guard.state() == LockState::Lost);
    drop(guard);
    assert_free(&server);
    server.assert_clean();
}

/// A manager that waits for late answers, and the way to its server.
async fn patient() -> (Server, Proxy, Locks) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = builder(&proxy.url()).command_timeout(ms(2000)).connect().await;
    (server, proxy, locks.expect("the server is there"))
}

async fn c5_a_renewal_confirmed_after_the_end_changes_nothing() {
    let (server, proxy, locks) = patient().await;
    let guard = locks.mutex(KEY).ttl(ms(600)).acquire().await.unwrap();
    proxy.delay_down(ms(900));
    assert_eq!(loss(&guard).await, LossReason::Expired);
    // The renewals that the server did grant are answered now.
    holds_for(ms(1500), "it stays lost", || guard.state() == LockState::Lost);
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(guard.ensure(Duration::ZERO).is_err_and(|error| error.is_lost()));
    proxy.pass();
    eventually(ms(2000), "what the server still keeps is given up", || !server.exists(WIRE));
    drop(guard);
    server.assert_clean();
}

/// Many leases that fall due at once are renewed in one call, and its answer is lost.
async fn lg31_an_answer_for_many_that_is_lost_costs_none_of_them_its_lease() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let mut guards = Vec::new();
    for number in 0..64 {
        guards.push(locks.mutex(format!("job:{number}")).ttl(ms(2_400)).acquire().await.unwrap());
    }
    proxy.cut_reply_to("job:");
    let before: Vec<_> = guards.iter().map(|guard| Instant::now() + guard.remaining()).collect();
    until("an answer is lost", || proxy.cuts() > 0).await;
    let is_renewed = |number: usize| {
        let left = guards[number].remaining();
        assert!(!left.is_zero(), "{number} was lost");
        Instant::now() + left > before[number] + ms(50)
    };
    until("all are renewed", || (0..64).all(is_renewed)).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

/// A short lease, and the earliest time of its second renewal: each comes after 30 to 37 % of it.
const SHORT: Duration = ms(1_500);
const SECOND_RENEWAL: Duration = ms(900);

async fn c6_a_key_that_is_removed_is_a_loss_at_the_next_renewal() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    for words in ["DEL lock:job", "FLUSHALL", "SWAPDB 0 1"] {
        let mut fastest = Fastest::below(SECOND_RENEWAL);
        while fastest.needs_turn() {
            server.run::<()>("FLUSHALL");
            let guard = locks.mutex(KEY).ttl(SHORT).acquire().await.unwrap();
            let start = Instant::now();
            server.run::<redis::Value>(words);
            let reason = loss(&guard).await;
            assert!(matches!(reason, LossReason::Removed { .. }), "{words}: {reason}");
            fastest.add(start.elapsed());
            assert!(!server.exists(WIRE), "it is not made again");
        }
        assert!(fastest.took() < SECOND_RENEWAL, "{words}: {:?}", fastest.took());
    }
    server.run::<()>("FLUSHALL");
    server.assert_clean();
}

async fn c7_anothers_value_is_a_loss_and_is_left_alone() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let mut fastest = Fastest::below(SECOND_RENEWAL);
    while fastest.needs_turn() {
        server.run::<()>("DEL lock:job");
        let guard = locks.mutex(KEY).ttl(SHORT).acquire().await.unwrap();
        server.run::<()>("SET lock:job somebody PX 10000");
        let start = Instant::now();
        match loss(&guard).await {
            LossReason::Overwritten { by, .. } => assert_eq!(by.to_string(), "somebody"),
            other => panic!("{other:?}"),
        }
        fastest.add(start.elapsed());
        assert_eq!(server.get(WIRE).as_deref(), Some("somebody"));
        let left = server.pttl(WIRE).unwrap();
        assert!(left > 5000, "its time was changed: {left}");
    }
    assert!(fastest.took() < SECOND_RENEWAL, "{:?}", fastest.took());
    stays(WATCHED, "it is left alone", || server.get(WIRE).as_deref() == Some("somebody")).await;
    server.run::<()>("DEL lock:job");
    server.assert_clean();
}

async fn c8_the_lease_starts_when_the_request_is_sent() {
    let (server, proxy, locks) = patient().await;
    for (up, down) in [(200, 0), (0, 200), (100, 100)] {
        proxy.delay_up(ms(up));
        proxy.delay_down(ms(down));
        // Long, because a command may take a sixth of it at most.
        let ttl = LONG;
        let start = Instant::now();
        let guard = locks.mutex(KEY).ttl(ttl).acquire().await.unwrap();
        let (left, passed) = (guard.remaining(), start.elapsed());
        assert!(left <= ttl - ms(200), "{left:?} left of {ttl:?}");
        assert!(left + passed >= ttl - ms(302) - ms(100), "{left:?} left after {passed:?}");
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

/// Watches from a thread of its own that the lock stays with its holder.
struct Watch {
    ended: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Option<String>>>,
}

impl Watch {
    fn over(server: &Arc<Server>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (server, stop) = (Arc::clone(server), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let owner = server.get(WIRE);
                if seen.last() != Some(&owner) {
                    seen.push(owner);
                }
                thread::sleep(ms(5));
            }
            seen
        });
        Self { ended, thread }
    }

    /// Every value that was seen at the key, in the order of their coming.
    fn seen(self) -> Vec<Option<String>> {
        self.ended.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn c9_kept_while_the_only_thread_of_the_runtime_is_blocked() {
    let server = Arc::new(Server::start());
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(2500)).acquire().await.unwrap();
    let watch = Watch::over(&server);
    thread::sleep(ms(6000));
    assert_eq!(guard.state(), LockState::Held);
    assert_eq!(watch.seen(), [Some(guard.token().to_string())]);
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn c9_kept_while_both_workers_of_the_runtime_are_blocked() {
    let server = Arc::new(Server::start());
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(2500)).acquire().await.unwrap();
    let watch = Watch::over(&server);
    let blocked = [(); 2].map(|()| tokio::spawn(async { thread::sleep(ms(6000)) }));
    thread::sleep(ms(6000));
    for task in blocked {
        task.await.unwrap();
    }
    assert_eq!(guard.state(), LockState::Held);
    assert_eq!(watch.seen(), [Some(guard.token().to_string())]);
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn c10_a_blocking_command_of_the_user_is_not_in_the_way() {
    let server = Arc::new(Server::start());
    let client = server.client();
    let locks =
        Locks::builder().client(client.clone()).scripting(scripting()).connect().await.unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let guard = locks.mutex(KEY).ttl(ms(1500)).acquire().await.unwrap();
    let watch = Watch::over(&server);
    let mut blocking = redis::cmd("BLPOP");
    blocking.arg("empty").arg(3);
    let popped = tokio::time::timeout(
        ms(3500),
        blocking.query_async::<Option<(String, String)>>(&mut connection),
    )
    .await;
    // The driver may give up waiting before the server does; the command goes on all the same.
    drop(popped);
    sleep(ms(2500)).await;
    assert_eq!(watch.seen(), [Some(guard.token().to_string())]);
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn c11_a_body_that_is_stuck_is_renewed_for_no_longer_than_max_hold() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let start = Instant::now();
    let outcome = locks
        .mutex(KEY)
        .ttl(ms(600))
        .max_hold(ms(2000))
        .run(async |_| std::future::pending::<()>().await)
        .await;
    let took = start.elapsed();
    assert!(
        matches!(outcome, Err(LockError::Lost { reason: LossReason::HoldLimit, .. })),
        "{outcome:?}"
    );
    assert!(took >= ms(1950) && took < ms(2000) + REPORTED, "{took:?}");
    server.assert_clean();
}

async fn c14_a_ttl_too_short_to_be_renewed_is_refused() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let monitor = server.monitor();
    let outcome = locks.mutex(KEY).ttl(ms(99)).acquire().await;
    assert!(matches!(outcome, Err(LockError::InvalidConfig { .. })), "{outcome:?}");
    holds_for(ms(100), "nothing is sent", || monitor.count(WIRE) == 0);
    let shortest = locks.mutex(KEY).ttl(ms(100)).acquire().await.unwrap();
    // On a busy machine it ends before that.
    let released = shortest.release().await;
    assert!(released.as_ref().err().is_none_or(LockError::is_lost), "{released:?}");
    server.assert_clean();
}

/// The time by the system's clock, which all processes share.
fn micros() -> u128 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()
}

/// Holds the lock and says at each poll of the body when that was; then what came of it.
pub(crate) fn run_body(io: &mut ChildIo) {
    let locks = open(&std::env::var("REDIS_URL").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(locks.mutex(KEY).ttl(ms(800)).run(async |guard| {
        io.say(&format!("holding {}", guard.token()));
        loop {
            io.say(&format!("running {}", micros()));
            sleep(ms(10)).await;
        }
    }));
    let lost = matches!(outcome, Err(LockError::Lost { .. }));
    io.say(&format!("ended {lost}"));
    io.hear();
}

#[test]
fn c15_a_process_that_was_frozen_does_not_go_on() {
    let server = Server::start();
    for _ in 0..3 {
        let mut child = Child::spawn("renewal_run_body", &[("REDIS_URL", &server.url())]);
        child.expect("holding");
        child.expect("running");
        child.freeze();
        // Another holder gets the lock, and has it while the first one wakes up.
        let other = open(&server.url());
        let guard = job(&other).wait(PATIENCE).blocking_acquire().unwrap();
        let thawed = micros();
        child.thaw();
        assert_eq!(child.expect("ended"), "true");
        // At most the poll that was going on when it was frozen.
        let times = child.heard().iter().filter_map(|line| line.strip_prefix("running "));
        let ran = times.filter(|time| time.parse::<u128>().unwrap() >= thawed).count();
        assert!(ran <= 1, "the body ran on {ran} times");
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        child.tell("");
        child.wait();
        server.assert_clean();
    }
}

async fn c17_a_body_that_never_awaits_can_ask_and_gets_the_loss_at_the_end() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let request = || locks.mutex(KEY).ttl(ms(1_000)).renew(false);
    let mut asked = Vec::new();
    let outcome = request()
        .run(async |guard| {
            asked.push(guard.ensure(ms(100)).is_ok());
            thread::sleep(ms(1_400));
            asked.push(guard.ensure(Duration::ZERO).is_ok());
        })
        .await;
    assert!(outcome.as_ref().is_err_and(LockError::is_lost), "{outcome:?}");
    assert_eq!(asked, [true, false]);

    let outcome = request().blocking_run(|guard| {
        thread::sleep(ms(1_400));
        guard.is_held()
    });
    assert!(outcome.as_ref().is_err_and(LockError::is_lost), "{outcome:?}");
    server.assert_clean();
}

each_way!(
    c1_no_renewal_outlives_the_release,
    c2_an_acquisition_that_was_dropped_is_not_renewed,
    c3_a_gap_in_the_network_is_bridged,
    c4_a_frozen_server_is_a_loss_at_the_leases_end,
    c5_a_renewal_confirmed_after_the_end_changes_nothing,
    lg31_an_answer_for_many_that_is_lost_costs_none_of_them_its_lease,
    c6_a_key_that_is_removed_is_a_loss_at_the_next_renewal,
    c7_anothers_value_is_a_loss_and_is_left_alone,
    c8_the_lease_starts_when_the_request_is_sent,
    c11_a_body_that_is_stuck_is_renewed_for_no_longer_than_max_hold,
    c14_a_ttl_too_short_to_be_renewed_is_refused,
    c17_a_body_that_never_awaits_can_ask_and_gets_the_loss_at_the_end,
);

each_way!(on 2 threads:
    c4_a_lock_that_cannot_be_renewed_is_lost_at_its_own_end,
    c9_kept_while_both_workers_of_the_runtime_are_blocked,
    c10_a_blocking_command_of_the_user_is_not_in_the_way,
);
