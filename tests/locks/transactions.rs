//! Transactions of several tasks side by side: a late, aborted or refused one holds up no other.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, Scripting};
use testbed::{Proxy, Server, Turns, eventually};
use tokio::task::JoinSet;

use crate::support::*;
use crate::without_scripts::{NO_SCRIPTS, as_user, never};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_handed_on_starves_no_client() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 100;
    let server = Server::start();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(never(&server).await);
    }
    let held = job(&clients[0]).acquire().await.unwrap();
    let begun = clients.iter().cloned().map(|locks| {
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                job(&locks).acquire().await.unwrap().release().await.unwrap();
            }
        })
    });
    let begun: Vec<_> = begun.collect();
    until("all but one have queued", || places(&server) == CLIENTS - 1).await;
    server.reset_counts();
    held.release().await.unwrap();
    for client in begun {
        tokio::time::timeout(PATIENCE, client).await.expect("it is served").unwrap();
    }
    let sent: u64 = server.command_counts().values().sum();
    println!("{} commands for each lock", sent / (CLIENTS * ROUNDS) as u64);
    server.assert_clean();
}

/// How many wait in the queue.
fn places(server: &Server) -> usize {
    server.run("ZCARD lock:{lock:job}:~q")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_in_the_queue_gets_a_lock_that_is_ended_by_force() {
    let server = Server::start();
    let forcing = never(&server).await;
    let mut held = job(&never(&server).await).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let locks = never(&server).await;
        let request = job(&locks).acquire();
        waiting.push(tokio::spawn(async move { (number, request.await.unwrap(), locks) }));
        until("it has queued", || places(&server) == number).await;
    }
    for (at, waits) in waiting.into_iter().enumerate() {
        let start = Instant::now();
        assert!(forcing.force_release(KEY, "it hangs").await.unwrap());
        loss(&held).await;
        let (number, guard, _locks) = tokio::time::timeout(PATIENCE, waits).await.unwrap().unwrap();
        assert_eq!(number, at + 1, "in the order of their coming");
        assert!(start.elapsed() < LONG / 2, "{:?}: it was not handed on", start.elapsed());
        held = guard;
    }
    held.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queueing_while_the_lock_is_ended_by_force_leaves_nobody_behind() {
    let server = Server::start();
    let (holder, forcing) = (never(&server).await, never(&server).await);
    let others = [never(&server).await, never(&server).await, never(&server).await];
    for round in 0..20 {
        let held = job(&holder).acquire().await.unwrap();
        let waiting = others.each_ref().map(|locks| {
            let acquiring = job(locks).acquire();
            tokio::spawn(async move {
                match acquiring.await.unwrap().release().await {
                    // It may be its guard that was ended.
                    Ok(()) | Err(LockError::Lost { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                }
            })
        });
        let start = Instant::now();
        until("a waiter is queued", || places(&server) > 0).await;
        forcing.force_release(KEY, "it hangs").await.unwrap();
        loss(&held).await;
        for waits in waiting {
            tokio::time::timeout(PATIENCE, waits).await.unwrap().unwrap();
        }
        assert!(start.elapsed() < LONG / 2, "round {round}: {:?}", start.elapsed());
    }
    for locks in others.iter().chain([&holder, &forcing]) {
        locks.shutdown().await;
    }
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_while_it_queues_behind_others_leaves_no_place() {
    let server = Server::start();
    let held = job(&never(&server).await).acquire().await.unwrap();
    let first = never(&server).await;
    let waiting = tokio::spawn(job(&first).acquire());
    until("the lock is marked", || server.get(WIRE).is_some_and(|it| it.ends_with('+'))).await;
    for step in 0..24 {
        let locks = never(&server).await;
        let request = tokio::spawn(job(&locks).acquire());
        // Before, while and after its place is written.
        tokio::time::sleep(Duration::from_micros(200 * step)).await;
        locks.shutdown().await;
        let outcome = request.await.unwrap();
        assert!(matches!(outcome, Err(LockError::Shutdown)), "step {step}: {outcome:?}");
        until("its place is gone", || places(&server) == 1).await;
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    first.shutdown().await;
    server.assert_clean();
}

/// Takes its own lock again and again, at least five times.
async fn go_on(locks: Locks, key: String, is_over: Arc<AtomicBool>) {
    let mut pairs = 0;
    while pairs < 5 || !is_over.load(Ordering::SeqCst) {
        let guard = locks.mutex(&key).ttl(LONG).acquire().await.unwrap();
        match guard.release().await {
            // Its own connection was late, and its release goes on in the background.
            Ok(()) | Err(LockError::Backend { .. }) => pairs += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_transaction_is_no_concern_of_others() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
    let locks = builder.command_timeout(COMMAND).connect().await.unwrap();
    let held = job(&locks).acquire().await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..4)
        .map(|at| tokio::spawn(go_on(locks.clone(), format!("own:{at}"), Arc::clone(&is_over))))
        .collect();
    let own = format!("lock:own:{}", others.len() - 1);
    eventually(PATIENCE, "they have begun", || server.exists(&own));
    for round in 0..4 {
        // The answer to an `EXEC` never comes, and the connection stays open.
        let link = proxy.connections().iter().find(|it| it.open && !it.subscriber).unwrap().number;
        let silent = proxy.only(|it| it.open && !it.subscriber && it.number != link);
        assert!(silent.count() > 0, "no connection for transactions in round {round}");
        silent.hole_down();
        let is_open = || proxy.connections().iter().any(|it| it.number == link && it.open);
        let what = format!("the connection of all stands in round {round}, and the lock is held");
        stays(COMMAND + WATCHED, &what, || is_open() && held.is_held()).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for other in others {
        let ended = tokio::time::timeout(PATIENCE, other).await;
        ended.expect("it goes on beside late transactions").unwrap();
    }
    held.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_silence_of_the_common_connection_is_not_hidden_by_transactions() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
    let locks = builder.command_timeout(COMMAND).connect().await.unwrap();
    let busy = job(&locks).acquire().await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = {
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                // It goes by a transaction and is heard of all the time.
                let _ = busy.verify().await;
            }
            busy.release().await
        })
    };
    let link = proxy.connections().iter().find(|it| it.open && !it.subscriber).unwrap().number;
    proxy.only(|it| it.number == link).hole();
    let guard = locks.mutex("other").ttl(LONG).acquire().await.unwrap();
    is_over.store(true, Ordering::SeqCst);
    asking.await.unwrap().unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_in_silence_cost_one_time_limit_together() {
    const LOCKS: usize = 16;
    let mut turns = Turns::of("the dead connections cost one time limit together");
    while turns.go_on() {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
        let locks = builder.command_timeout(COMMAND).ttl(LONG).connect().await.unwrap();
        let held = job(&never(&server).await).acquire().await.unwrap();
        let link = proxy.connections().iter().find(|it| it.open && !it.subscriber).unwrap().number;
        let mut own = JoinSet::new();
        for number in 0..LOCKS {
            let request = locks.mutex(format!("own {number}")).acquire();
            own.spawn(async move {
                let guard = request.await.unwrap();
                for _ in 0..10 {
                    // On a busy machine it may take longer than its time limit.
                    let _ = guard.verify().await;
                }
                guard
            });
        }
        let own = own.join_all().await;
        let pooled = || proxy.only(|it| !it.subscriber && it.number != link);
        assert!(pooled().count() >= 3, "{:?}", proxy.connections());
        pooled().hole();
        let start = Instant::now();
        let waits = tokio::spawn(job(&locks).acquire());
        until("it has queued", || places(&server) == 1).await;
        let took = start.elapsed();
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
        for guard in own {
            guard.release().await.unwrap();
        }
        server.assert_clean();
        turns.must_be_below(2 * COMMAND, took);
    }
}

/// Hands a lock over to a waiter, again and again, until the server was asked whether the waiter lives,
/// because it had not asked for the lock for a while.
async fn hand_over_asking(from: &Locks, to: &Locks, server: &Server) {
    server.reset_counts();
    // Older servers count the command without the subcommand.
    while !server.command_counts().keys().any(|name| name.starts_with("pubsub")) {
        let held = job(from).acquire().await.unwrap();
        let waits = tokio::spawn(job(to).acquire());
        until("it has queued", || places(server) == 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_over_after_the_connection_died_that_asks_for_listeners() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
    let locks = builder.command_timeout(COMMAND).connect().await.unwrap();
    let other = never(&server).await;
    hand_over_asking(&locks, &other, &server).await;
    let link = proxy.connections().iter().find(|it| it.open && !it.subscriber).unwrap().number;
    proxy.only(|it| !it.subscriber && it.number != link).hole();
    let guard = locks.mutex("other").ttl(LONG).acquire().await.unwrap();
    // The connections of the transactions are replaced.
    while guard.verify().await.is_err() {}
    hand_over_asking(&locks, &other, &server).await;
    guard.release().await.unwrap();
    server.assert_clean();
}

/// Changes a key without a gap, until it is asked to stop.
fn disturb(server: &Server, key: &str, is_over: &Arc<AtomicBool>) -> JoinHandle<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let touch = format!("PEXPIRE {key} {}\r\n", LONG.as_millis()).repeat(1_000);
    let is_over = Arc::clone(is_over);
    thread::spawn(move || {
        // A client that waits for no answer always has a command at the server.
        stream.write_all(b"CLIENT REPLY OFF\r\n").unwrap();
        while !is_over.load(Ordering::SeqCst) {
            stream.write_all(touch.as_bytes()).unwrap();
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_does_not_come_through_delays_no_other() {
    let server = Server::start();
    if compares_by_itself(&server) {
        testbed::skip!("needs a server that releases by a transaction")
    }
    // A transaction that takes this long is sure to be aborted by a change of the key.
    let proxy = Proxy::to(server.port());
    let builder = Locks::builder().url(proxy.url()).scripting(Scripting::Never);
    let locks = builder.connect().await.unwrap();
    proxy.delay_up(Duration::from_millis(30));
    let hot = job(&locks).acquire().await.unwrap();
    let mut others = Vec::new();
    for at in 0..5 {
        others.push(locks.mutex(format!("k{at}")).ttl(LONG).acquire().await.unwrap());
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let disturbing = disturb(&server, WIRE, &is_over);
    server.reset_counts();
    let releasing = tokio::spawn(async {
        let outcome = hot.release().await;
        (outcome, Instant::now())
    });
    eventually(PATIENCE, "it is being released", || server.command_counts().contains_key("watch"));
    for other in others {
        other.release().await.unwrap();
    }
    let others_done = Instant::now();
    is_over.store(true, Ordering::SeqCst);
    disturbing.join().unwrap();
    let (outcome, hot_done) = releasing.await.unwrap();
    assert!(hot_done > others_done, "the others have waited for {outcome:?}");
    eventually(PATIENCE, "all are free", || server.keys().iter().all(|key| !key.ends_with(WIRE)));
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_refused_spoils_no_other_in_its_transaction() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user(NO_SCRIPTS).start();
    let locks = Locks::connect(as_user(&server, "app")).await.unwrap();
    let mut guards = Vec::new();
    for key in ["good:1", "good:2", "bad", "good:3"] {
        guards.push((key, locks.mutex(key).ttl(LONG).acquire().await.unwrap()));
    }
    server.run::<()>("ACL SETUSER app resetkeys ~lock:good* ~*good*");
    let releasing: Vec<_> =
        guards.into_iter().map(|(key, guard)| (key, tokio::spawn(guard.release()))).collect();
    for (key, releasing) in releasing {
        let outcome = releasing.await.unwrap();
        assert_eq!(outcome.is_ok(), key != "bad", "{key}: {outcome:?}");
    }
    server.run::<()>("ACL SETUSER app allkeys");
    server.run::<()>("DEL lock:bad");
    server.assert_clean();
}
