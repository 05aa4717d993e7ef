//! One hot key, several processes with several tasks each: everyone gets turns.

use std::env;
use std::time::{Duration, Instant};

use redis_locks::Locks;
use testbed::{Child, ChildIo, ServerBuilder};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::scenery::*;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const TIME: Duration = Duration::from_secs(4);

/// A turn lasts 10 ms, and the others have three of them: what is far beyond is a starved task.
const LONGEST_WAIT: Duration = ms(2000);

/// Locks and unlocks as fast as it goes, with several tasks; reports how often the least served
/// task had the lock, and the longest wait.
pub(crate) fn take_turns(io: &mut ChildIo) {
    let locks = Locks::open(env::var("REDIS_URL").unwrap()).unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    io.say("ready");
    io.hear();
    let end = Instant::now() + TIME;
    let (least, longest) = runtime.unwrap().block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let locks = locks.clone();
            tasks.spawn(async move {
                let (mut turns, mut longest) = (0_u64, Duration::ZERO);
                while Instant::now() < end {
                    let asked = Instant::now();
                    let guard = job(&locks).acquire().await.unwrap();
                    longest = longest.max(asked.elapsed());
                    turns += 1;
                    guard.release().await.unwrap();
                }
                (turns, longest)
            });
        }
        let all = tasks.join_all().await;
        let least = all.iter().map(|(turns, _)| *turns).min().unwrap();
        (least, all.iter().map(|(_, longest)| *longest).max().unwrap())
    });
    io.say(&format!("turns {least} {}", longest.as_millis()));
    io.hear();
}

async fn i6_tasks_of_four_processes_all_get_turns_on_one_key(builder: ServerBuilder) {
    let server = builder.start();
    let url = server.url();
    let mut children: Vec<Child> =
        (0..PROCESSES).map(|_| Child::spawn("take_turns", &[("REDIS_URL", &url)])).collect();
    for child in &mut children {
        child.expect("ready");
    }
    for child in &mut children {
        child.tell("go");
    }
    for child in &mut children {
        let said = child.expect("turns");
        let (least, longest) = said.split_once(' ').unwrap();
        let (least, longest): (u64, u64) = (least.parse().unwrap(), longest.parse().unwrap());
        eprintln!("least served {least} times, longest wait {longest} ms");
        assert!(least >= 10, "a task had {least} turns in {TIME:?}");
        assert!(ms(longest) < LONGEST_WAIT, "a task waited for {longest} ms");
    }
    server.assert_clean();
}

on_both_servers!(i6_tasks_of_four_processes_all_get_turns_on_one_key);
