//! Holding and taking locks over connections that are cut, half open, in pieces, or lead to
//! something that is no lock server at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, LockState, Locks};
use testbed::{Proxy, Server, eventually, free_port, holds_for};
use tokio::time::sleep;

use crate::refusing::{endless_script, kill_script};
use crate::support::*;

async fn d1_a_half_open_connection_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(3000)).acquire().await.unwrap();
    let before = proxy.count();
    proxy.existing().hole();
    let start = Instant::now();
    // Two commands time out, then a new connection is made.
    let second = locks.mutex("second").ttl(LONG).wait(PATIENCE).acquire().await.unwrap();
    assert!(start.elapsed() < 2 * COMMAND + GRACE + ms(500), "{:?}", start.elapsed());
    assert!(proxy.count() > before);
    holds_for(ms(6000), "the lock is kept", || guard.is_held());
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    second.release().await.unwrap();
    server.assert_clean();
}

/// The server is stuck for `stuck`, by `how`; then a lock of ttl 2 s has been kept or lost.
async fn stuck(how: impl FnOnce(&Server), end: impl FnOnce(&Server), stuck: Duration) {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(2000)).acquire().await.unwrap();
    how(&server);
    sleep(stuck).await;
    end(&server);
    if stuck < ms(2000) {
        eventually(ms(1500), "it is held again", || guard.state() == LockState::Held);
        holds_for(ms(2500), "it is renewed", || guard.is_held());
        guard.release().await.unwrap();
    } else {
        assert_eq!(guard.state(), LockState::Lost);
        drop(guard);
    }
    assert_free(&server);
    server.assert_clean();
}

async fn d2_a_server_frozen_for_less_than_the_ttl() {
    stuck(Server::freeze, Server::thaw, ms(900)).await;
}

async fn d2_a_server_frozen_for_more_than_the_ttl() {
    stuck(Server::freeze, Server::thaw, ms(2600)).await;
}

async fn d2_a_server_that_sleeps() {
    let sleep = |server: &Server| server.run::<()>("DEBUG SLEEP 0.9");
    stuck(sleep, |_| {}, ms(10)).await;
}

async fn d2_a_server_busy_with_a_script_for_less_than_the_ttl() {
    stuck(endless_script, kill_script, ms(700)).await;
}

async fn d2_a_server_busy_with_a_script_for_more_than_the_ttl() {
    stuck(endless_script, kill_script, ms(2600)).await;
}

async fn d3_a_password_that_is_changed_and_changed_back() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(5000)).acquire().await.unwrap();
    server.run::<()>("CONFIG SET requirepass secret");
    server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
    for _ in 0..5 {
        let outcome = locks.mutex("other").no_wait().acquire().await;
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
        sleep(ms(300)).await;
    }
    let outcome = locks.mutex("other").no_wait().acquire().await;
    assert_backend(outcome, "NOAUTH");
    let mut unset = redis::cmd("CONFIG");
    server.query::<()>(unset.arg("SET").arg("requirepass").arg("")).unwrap();
    let start = Instant::now();
    eventually_acquires(&locks, ms(3000)).await;
    assert!(start.elapsed() < ms(3000), "{:?}", start.elapsed());
    holds_for(ms(5000), "the lock is kept", || guard.is_held());
    guard.release().await.unwrap();
    server.assert_clean();
}

/// Acquires and releases another key, as soon as that works.
async fn eventually_acquires(locks: &Locks, limit: Duration) {
    let start = Instant::now();
    loop {
        match locks.mutex("other").ttl(LONG).wait(ms(100)).acquire().await {
            Ok(guard) => return guard.release().await.unwrap(),
            Err(error) => assert!(start.elapsed() < limit, "{}", full_text(&error)),
        }
        sleep(ms(20)).await;
    }
}

async fn d3_an_address_where_a_web_server_answers_for_a_while() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(5000)).acquire().await.unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = web.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in web.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    proxy.redirect(port);
    proxy.kill_all();
    for _ in 0..5 {
        let outcome = locks.mutex("other").no_wait().acquire().await;
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
        sleep(ms(300)).await;
    }
    proxy.redirect(server.port());
    eventually_acquires(&locks, ms(3000)).await;
    holds_for(ms(5000), "the lock is kept", || guard.is_held());
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn d4_an_outage_longer_than_any_budget_of_the_driver() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (locks, other) = (connect(&proxy.url()).await, connect(&server.url()).await);
    proxy.refuse();
    proxy.kill_all();
    sleep(ms(14_000)).await;
    proxy.pass();
    eventually_acquires(&locks, ms(4000)).await;
    // Those who wait get messages about releases again: subscriptions came back as well.
    until("both listen", || channels(&server) == 2).await;
    let mut fastest = Fastest::below(NOTIFIED);
    while fastest.needs_turn() {
        let held = job(&other).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&locks).wait(PATIENCE).acquire());
        until_queued(&server).await;
        held.release().await.unwrap();
        let start = Instant::now();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        fastest.add(start.elapsed());
    }
    let took = fastest.took();
    assert!(took < NOTIFIED, "{took:?}: the waiter got no message");
    server.assert_clean();
}

async fn d5_a_server_that_closes_idle_connections() {
    let server = Server::start();
    server.run::<()>("CONFIG SET timeout 1");
    let locks = connect(&server.url()).await;
    for _ in 0..2 {
        sleep(ms(2500)).await;
        let guard = job(&locks).wait(ms(2000)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

async fn d6_replies_in_single_bytes() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.split(1);
    let locks = builder(&proxy.url()).command_timeout(PATIENCE).connect().await.unwrap();
    for _ in 0..10 {
        let guard = job(&locks).fenced().acquire().await.unwrap();
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

async fn d6_a_connection_cut_after_any_byte_of_a_reply() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for bytes in 1..60 {
        proxy.existing().cut_after(bytes);
        // Long replies are met by the fenced request, short ones by the release.
        let guard = job(&locks).fenced().wait(PATIENCE).acquire().await.unwrap();
        assert_eq!(server.get(WIRE), Some(guard.token().to_string()));
        match guard.release().await {
            Ok(()) => {}
            Err(error) => panic!("cut after {bytes} bytes: {}", full_text(&error)),
        }
        eventually(SOON, "it is released", || !server.exists(WIRE));
    }
    assert!(proxy.count() > 20, "only {} connections", proxy.count());
    server.assert_clean();
}

async fn d9_connections_killed_again_and_again() {
    let server = Server::start();
    let holder = connect(&server.url()).await;
    let held = holder.mutex("held").ttl(ms(4000)).acquire().await.unwrap();
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let (ended, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Two managers, as two processes would have them, hand a lock to and fro meanwhile.
    let tasks = managers.map(|locks| {
        let (ended, turns) = (Arc::clone(&ended), Arc::clone(&turns));
        tokio::spawn(async move {
            let mut worst = Duration::ZERO;
            while !ended.load(Ordering::SeqCst) {
                let start = Instant::now();
                let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
                worst = worst.max(start.elapsed());
                turns.fetch_add(1, Ordering::SeqCst);
                sleep(ms(5)).await;
                if let Err(error) = guard.release().await {
                    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
                }
            }
            worst
        })
    });
    let start = Instant::now();
    while start.elapsed() < ms(10_000) {
        for kind in ["normal", "pubsub"] {
            server.run::<u64>(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
            sleep(ms(400)).await;
            assert!(held.is_held(), "a lock was lost");
        }
    }
    ended.store(true, Ordering::SeqCst);
    for task in tasks {
        let worst = task.await.unwrap();
        assert!(worst < ms(4000), "a caller waited {worst:?}");
    }
    let turns = turns.load(Ordering::SeqCst);
    assert!(turns > 100, "only {turns} turns");
    held.release().await.unwrap();
    server.assert_clean();
}

async fn d10_a_server_that_accepts_and_never_answers() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.accept_and_ignore();
    let start = Instant::now();
    let outcome = builder(&proxy.url()).command_timeout(COMMAND).connect().await;
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    assert!(start.elapsed() < ms(4000), "{:?}", start.elapsed());
    let locks = open(&proxy.url());
    let start = Instant::now();
    let outcome = job(&locks).wait(ms(300)).acquire().await;
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    assert!(start.elapsed() < ms(300) + COMMAND + GRACE, "{:?}", start.elapsed());
    proxy.pass();
    eventually_acquires(&locks, ms(5000)).await;
    server.assert_clean();
}

async fn d11_a_name_that_does_not_resolve() {
    let url = "redis://no-such-host.invalid";
    let start = Instant::now();
    let outcome = builder(url).command_timeout(COMMAND).connect().await;
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    let locks = open(url);
    let outcome = job(&locks).wait(ms(300)).acquire().await;
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    assert!(start.elapsed() < HANGS, "{:?}", start.elapsed());
}

async fn d11_an_address_that_changes_hands() {
    let (first, second) = (Server::start(), Server::start());
    let proxy = Proxy::to(first.port());
    let locks = connect(&proxy.url()).await;
    eventually_acquires(&locks, ms(3000)).await;
    proxy.redirect(second.port());
    proxy.kill_all();
    let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
    assert!(second.exists(WIRE) && !first.exists(WIRE));
    guard.release().await.unwrap();
    first.assert_clean();
    second.assert_clean();
}

/// Answers whatever it is asked with a value that has nothing to do with it.
fn babble(listener: &TcpListener, seed: u64) {
    let mut random = Random(seed);
    for mut stream in listener.incoming().map_while(Result::ok) {
        let mut random = Random(random.next());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                // About one reply for each command, which starts with a star.
                let commands = buffer[..read].iter().filter(|byte| **byte == b'*').count();
                for _ in 0..commands {
                    let reply = random.reply(0);
                    if write_pieces(&mut stream, &reply).is_err() {
                        return;
                    }
                }
            }
        });
    }
}

fn write_pieces(stream: &mut TcpStream, reply: &[u8]) -> std::io::Result<()> {
    stream.write_all(reply)
}

/// A small generator (xorshift), so that a failure can be repeated by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn reply(&mut self, depth: u64) -> Vec<u8> {
        let number = i64::from_le_bytes(self.next().to_le_bytes()) >> self.below(64);
        match self.below(if depth < 3 { 14 } else { 9 }) {
            0 => b"+OK\r\n".to_vec(),
            1 => b"$-1\r\n".to_vec(),
            2 => format!(":{number}\r\n").into_bytes(),
            3 => b"$5\r\nhello\r\n".to_vec(),
            4 => b"$0\r\n\r\n".to_vec(),
            5 => b"-ERR of some kind\r\n".to_vec(),
            6 => b"-\r\n".to_vec(),
            7 => b"*-1\r\n".to_vec(),
            8 => {
                let mut noise = vec![b'$'];
                noise.extend((0..self.below(40)).map(|_| self.next().to_le_bytes()[0]));
                noise
            }
            9 => b"*0\r\n".to_vec(),
            _ => {
                let length = self.below(4);
                let mut array = format!("*{length}\r\n").into_bytes();
                for _ in 0..length {
                    array.extend(self.reply(depth + 1));
                }
                array
            }
        }
    }
}

async fn d13_replies_that_make_no_sense_are_errors_and_no_panics() {
    let panics = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&panics);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Other tests of this file may panic on purpose; the library's threads never may.
        if !thread::current().name().is_some_and(|name| name.starts_with("d1")) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        before(info);
    }));
    for seed in 1..=60_u64 {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        thread::spawn(move || babble(&listener, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let locks = open(&url);
        let start = Instant::now();
        // "OK" is a good answer to anything; all else must be a typed failure.
        match locks.mutex(KEY).ttl(ms(1000)).wait(ms(100)).acquire().await {
            Ok(guard) => {
                let _: Result<(), LockError> = guard.verify().await;
                let _: Result<(), LockError> = Guard::release(guard).await;
            }
            Err(LockError::Backend { .. } | LockError::Busy { .. }) => {}
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
        assert!(start.elapsed() < ms(100) + 4 * COMMAND + GRACE, "seed {seed}");
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0);
}

each_way!(
    d1_a_half_open_connection_is_replaced,
    d2_a_server_frozen_for_less_than_the_ttl,
    d2_a_server_frozen_for_more_than_the_ttl,
    d2_a_server_that_sleeps,
    d2_a_server_busy_with_a_script_for_less_than_the_ttl,
    d2_a_server_busy_with_a_script_for_more_than_the_ttl,
    d3_a_password_that_is_changed_and_changed_back,
    d3_an_address_where_a_web_server_answers_for_a_while,
    d4_an_outage_longer_than_any_budget_of_the_driver,
    d5_a_server_that_closes_idle_connections,
    d6_replies_in_single_bytes,
    d6_a_connection_cut_after_any_byte_of_a_reply,
    d10_a_server_that_accepts_and_never_answers,
    d11_a_name_that_does_not_resolve,
    d11_an_address_that_changes_hands,
);

each_way!(on 2 threads:
    d9_connections_killed_again_and_again,
    d13_replies_that_make_no_sense_are_errors_and_no_panics,
);
