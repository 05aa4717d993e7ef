//! Numbers of permits in processes that are stopped and killed, seen from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, process, thread};

use redis_locks::{Guard, LockState, Locks};
use testbed::{Child, ChildIo, Server};

use crate::arena::{PATIENCE, ms, take};

const PERMITS: u32 = 3;
const HOLDERS: usize = 5;
const LEASE: Duration = ms(400);

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// Takes a permit again and again, and writes which number it has for as long as the guard says so.
pub(crate) fn holder(_: &mut ChildIo) {
    let locks = Locks::open(env::var("SERVER").unwrap()).unwrap();
    let mut log = OpenOptions::new().append(true).open(env::var("LOG").unwrap()).unwrap();
    for turn in 0_u64.. {
        let guard = take(locks.permit("gpu", PERMITS).slotted().ttl(LEASE).wait(PATIENCE));
        let (number, since, id) = (guard.slot().unwrap(), now(), process::id());
        let until = since + (turn * 37 % 100 + 20) * 1_000;
        loop {
            // Read before the guard is asked: a stop in between only shortens what it may claim.
            let at = now();
            let state = if guard.state() == LockState::Held { "has" } else { "lost" };
            log.write_all(format!("{id} {number} {since} {at} {state}\n").as_bytes()).unwrap();
            if state == "lost" || at >= until {
                break;
            }
            thread::sleep(ms(5));
        }
    }
}

/// What the holders have written.
#[derive(Default)]
struct Seen {
    /// Of each number, when a hold began and whose it was, and when it was last seen to be valid.
    holds: BTreeMap<u32, BTreeMap<(u64, String), u64>>,
    processes: BTreeSet<String>,
    lost: usize,
}

impl Seen {
    fn read(log: &str) -> Self {
        let mut seen = Self::default();
        for line in log.lines() {
            // The last one of a process that was killed may be cut off.
            let [id, number, since, at, state] = line.split(' ').collect::<Vec<_>>()[..] else {
                continue;
            };
            let (since, at) = (since.parse().unwrap(), at.parse().unwrap());
            let holds = seen.holds.entry(number.parse().unwrap()).or_default();
            match state {
                "has" => drop(holds.insert((since, id.to_owned()), at)),
                "lost" => seen.lost += 1,
                _ => {}
            }
            seen.processes.insert(id.to_owned());
        }
        seen
    }

    /// Whether some were stopped for longer than their lease, and all numbers and processes had their turn.
    fn is_enough(&self) -> bool {
        self.lost > 1 && self.processes.len() > HOLDERS && self.holds.keys().copied().eq(0..PERMITS)
    }

    fn each_number_has_one_holder(&self) {
        for (number, holds) in &self.holds {
            let each: Vec<_> = holds.iter().collect();
            let two = each.windows(2).find(|two| *two[0].1 >= two[1].0.0);
            assert_eq!(two, None, "{number} had two holders");
        }
    }
}

#[test]
fn sl6_no_two_valid_holders_have_one_number_while_processes_are_stopped_and_killed() {
    let server = Server::start();
    let path = env::temp_dir().join(format!("numbers-{}", process::id())).display().to_string();
    fs::write(&path, "").unwrap();
    let start = || Child::spawn("numbers_holder", &[("SERVER", &server.url()), ("LOG", &path)]);
    let mut holders: Vec<_> = (0..HOLDERS).map(|_| start()).collect();
    let seen = || Seen::read(&fs::read_to_string(&path).unwrap());
    let begun = Instant::now();
    for turn in 0.. {
        if turn >= 12 && (seen().is_enough() || begun.elapsed() > PATIENCE) {
            break;
        }
        let victim = &mut holders[turn % HOLDERS];
        if turn % 3 == 0 {
            victim.kill9();
            *victim = start();
            thread::sleep(ms(200));
        } else {
            victim.freeze();
            thread::sleep(LEASE * 3 / 2);
            victim.thaw();
        }
    }
    drop(holders);
    let seen = seen();
    fs::remove_file(&path).unwrap();
    let count: usize = seen.holds.values().map(BTreeMap::len).sum();
    println!("{count} holds of {} processes, {} lost", seen.processes.len(), seen.lost);
    seen.each_number_has_one_holder();
    assert!(seen.is_enough(), "of {:?}", begun.elapsed());

    let locks = Locks::open(server.url()).unwrap();
    let request = || locks.permit("gpu", PERMITS).slotted().wait(PATIENCE);
    let next: Vec<_> = (0..PERMITS).map(|_| take(request())).collect();
    let numbers: BTreeSet<_> = next.iter().filter_map(Guard::slot).collect();
    assert!(numbers.into_iter().eq(0..PERMITS), "each is given again");
}
