//! One channel for each manager, whatever it locks, and none when it is gone.

use std::time::Duration;

use redis_locks::Locks;
use testbed::{Server, ServerBuilder, eventually};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::*;

const MANAGERS: usize = 4;
const TASKS: u64 = 5;
const KEYS: u64 = 50;
/// 1,000 acquisitions in all.
const ROUNDS: u64 = 1_000 / (MANAGERS as u64 * TASKS);

fn channels(server: &Server) -> Vec<String> {
    server.run("PUBSUB CHANNELS *")
}

/// Locks and unlocks at random, and now and then gives up waiting.
async fn lock_at_random(locks: Locks, mut random: Random) {
    for _ in 0..ROUNDS {
        let key = format!("key:{}", random.below(KEYS));
        let request = locks.mutex(key).ttl(LONG).wait(PATIENCE);
        if random.below(5) == 0 {
            let limit = Duration::from_micros(random.below(3_000));
            drop(timeout(limit, request.acquire()).await);
            continue;
        }
        let guard = request.acquire().await.unwrap();
        tokio::time::sleep(ms(random.below(3))).await;
        match random.below(2) {
            0 => guard.release_in_background(),
            _ => guard.release().await.unwrap(),
        }
    }
}

async fn i10_fifty_keys_need_one_channel_for_each_manager(builder: ServerBuilder) {
    let server = builder.start();
    let mut random = Random::fresh();
    let all = managers(&server, MANAGERS);
    for locks in &all {
        drop(locks.mutex("first").acquire().await.unwrap());
    }
    eventually(PATIENCE, "each manager listens", || channels(&server).len() == MANAGERS);
    let mut before = channels(&server);
    before.sort_unstable();

    let mut tasks = JoinSet::new();
    for locks in &all {
        for _ in 0..TASKS {
            let random = Random::seeded(random.below(u64::MAX));
            tasks.spawn(lock_at_random(locks.clone(), random));
        }
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap();
        let mut now = channels(&server);
        now.sort_unstable();
        assert_eq!(now, before, "the channels are the same from start to end");
    }
    drop(all);
    eventually(PATIENCE, "no channel is left", || channels(&server).is_empty());
    // No process died: so no lock, no queue and no waiters are left, without waiting for any ttl.
    server.assert_clean();
}

on_both_servers!(i10_fifty_keys_need_one_channel_for_each_manager);
