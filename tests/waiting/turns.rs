//! One hot key, several processes with several tasks each: everyone gets turns.

use std::env;
use std::time::{Duration, Instant};

use redis_locks::Locks;
use testbed::{Child, ChildIo, ServerBuilder};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::support::*;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const TIME: Duration = Duration::from_secs(4);

/// So many tries may be spoilt by what else the machine does: who does not get a processor gets no turn.
const TRIES: usize = 3;

/// How many times as often as any other a task may be served: the others of the least served one's
/// process and those of other processes have as many turns of 10 ms as it has.
const UNFAIR: u64 = 4;

/// Locks and unlocks as fast as it goes, with several tasks; says how often the least and the most
/// served of them had the lock.
pub(crate) fn take_turns(io: &mut ChildIo) {
    let locks = Locks::open(env::var("REDIS_URL").unwrap()).unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    io.say("ready");
    io.hear();
    let end = Instant::now() + TIME;
    let (least, most) = runtime.unwrap().block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let locks = locks.clone();
            tasks.spawn(async move {
                let mut turns = 0_u64;
                while Instant::now() < end {
                    let guard = job(&locks).acquire().await.unwrap();
                    turns += 1;
                    guard.release().await.unwrap();
                }
                turns
            });
        }
        let all = tasks.join_all().await;
        (*all.iter().min().unwrap(), *all.iter().max().unwrap())
    });
    io.say(&format!("turns {least} {most}"));
    io.hear();
}

async fn i6_tasks_of_four_processes_all_get_turns_on_one_key(builder: ServerBuilder) {
    let server = builder.start();
    let is_fair = || {
        let (least, most) = turns(&server.url());
        eprintln!("least served {least} times, most served {most} times in {TIME:?}");
        server.assert_clean();
        least >= 10 && most <= least * UNFAIR
    };
    assert!((0..TRIES).any(|_| is_fair()), "unfair, {TRIES} times in a row");
}

/// How often the least and the most served task of all processes had the lock.
fn turns(url: &str) -> (u64, u64) {
    let mut children: Vec<Child> =
        (0..PROCESSES).map(|_| Child::spawn("take_turns", &[("REDIS_URL", url)])).collect();
    for child in &mut children {
        child.expect("ready");
    }
    for child in &mut children {
        child.tell("go");
    }
    let (mut least, mut most) = (u64::MAX, 0);
    for child in &mut children {
        let said = child.expect("turns");
        let (fewest, highest) = said.split_once(' ').unwrap();
        least = least.min(fewest.parse().unwrap());
        most = most.max(highest.parse().unwrap());
    }
    (least, most)
}

on_both_servers!(i6_tasks_of_four_processes_all_get_turns_on_one_key);
