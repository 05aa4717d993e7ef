//! Clients of other libraries on the same key: they set a value when there is none, and compare it
//! before they delete it. They exclude us and are excluded, and no other's value is touched.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, Script};
use testbed::{Server, ServerBuilder, holds_for};
use tokio::task::JoinSet;

use crate::support::*;

/// A client as most libraries write it.
struct Foreigner {
    connection: Connection,
    value: String,
}

impl Foreigner {
    fn on(server: &Server, value: &str) -> Self {
        Self { connection: server.client().get_connection().unwrap(), value: value.to_owned() }
    }

    fn try_lock(&mut self, ttl: Duration) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(WIRE).arg(&self.value).arg("NX").arg("PX");
        let answer: Option<String> =
            set.arg(u64::try_from(ttl.as_millis()).unwrap()).query(&mut self.connection).unwrap();
        answer.is_some()
    }

    fn unlock(&mut self) -> bool {
        const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
             return redis.call('DEL', KEYS[1]) else return 0 end";
        let script = Script::new(COMPARE_AND_DELETE);
        script.key(WIRE).arg(&self.value).invoke(&mut self.connection).unwrap()
    }
}

async fn i4_a_foreign_holder_is_waited_for_and_left_alone(builder: ServerBuilder) {
    let server = builder.start();
    let mut foreigner = Foreigner::on(&server, "somebody-else");
    let locks = manager(&server);
    for _ in 0..3 {
        assert!(foreigner.try_lock(LONG));
        let waiting = tokio::spawn(job(&locks).acquire());
        until_queued(&server, 1);
        holds_for(ms(300), "the foreign value is untouched", || {
            server.get(WIRE).as_deref() == Some("somebody-else")
        });
        assert!(!waiting.is_finished());
        let start = Instant::now();
        assert!(foreigner.unlock());
        let guard = waiting.await.unwrap().unwrap();
        // It sends no message, so we look four times a second.
        assert!(start.elapsed() < ms(1500), "{:?} after its release", start.elapsed());
        assert!(!foreigner.try_lock(LONG), "it takes what is ours");
        assert!(!foreigner.unlock(), "it releases what is ours");
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

async fn i4_a_foreign_holder_that_dies_is_succeeded_at_its_leases_end(builder: ServerBuilder) {
    let server = builder.start();
    let mut foreigner = Foreigner::on(&server, "somebody-else");
    let locks = manager(&server);
    let start = Instant::now();
    assert!(foreigner.try_lock(ms(1500)));
    let guard = job(&locks).acquire().await.unwrap();
    let took = start.elapsed();
    assert!(took > ms(1490) && took < ms(2500), "{took:?} for a lease of 1.5 s");
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn i8_foreign_clients_and_ours_take_turns(builder: ServerBuilder) {
    const ROUNDS: usize = 30;
    let server = builder.start();
    let room = Room::default();
    let foreigners: Vec<_> = ["a", "b+"]
        .into_iter()
        .map(|value| {
            let (mut foreigner, room) = (Foreigner::on(&server, value), room.clone());
            thread::spawn(move || {
                let deadline = Instant::now() + PATIENCE;
                for _ in 0..ROUNDS {
                    while !foreigner.try_lock(LONG) {
                        assert!(Instant::now() < deadline, "a foreign client never gets the lock");
                        thread::sleep(ms(2));
                    }
                    room.enter();
                    thread::sleep(ms(1));
                    room.leave();
                    assert!(foreigner.unlock(), "its lock was taken from it");
                    thread::sleep(ms(5));
                }
            })
        })
        .collect();
    let mut ours = JoinSet::new();
    for _ in 0..3 {
        let (locks, room) = (manager(&server), room.clone());
        ours.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = job(&locks).acquire().await.unwrap();
                room.enter();
                tokio::time::sleep(ms(1)).await;
                room.leave();
                guard.release().await.unwrap();
                // As long as some of ours wait, the lock is never free; others need a gap.
                tokio::time::sleep(ms(20)).await;
            }
        });
    }
    while let Some(outcome) = ours.join_next().await {
        outcome.unwrap();
    }
    for thread in foreigners {
        thread.join().unwrap();
    }
    server.assert_clean();
}

on_both_servers!(
    i4_a_foreign_holder_is_waited_for_and_left_alone,
    i4_a_foreign_holder_that_dies_is_succeeded_at_its_leases_end,
    i8_foreign_clients_and_ours_take_turns,
);
