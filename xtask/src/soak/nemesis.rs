use std::thread;
use std::time::{Duration, Instant};

use testbed::{Proxy, Server, continue_process, stop_process};

use super::TTL;
use super::place::Single;
use super::random::Random;
use super::workers::Workers;

/// Does everything to servers, network and workers that they must be able to bear.
pub(crate) struct Nemesis<'a> {
    pub(crate) place: &'a Single,
    pub(crate) random: Random,
    /// How many servers and workers it has killed.
    pub(crate) killed: u64,
}

impl Nemesis<'_> {
    /// Does one thing, and says what. Whatever it broke works again afterwards.
    pub(crate) fn strike(&mut self, workers: &mut Workers) -> String {
        let volatile = self.random.once_in(2);
        let (server, name) = self.place.server(volatile);
        let workers_count = self.place.workers() as u64;
        let worker = usize::try_from(self.random.below(workers_count)).unwrap_or(0);
        let proxy = self.place.proxy(worker, volatile);
        // From a blink to longer than a lease.
        let longest = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX) * 2;
        let duration = if self.random.once_in(2) {
            self.random.millis(1..200)
        } else {
            self.random.millis(200..longest)
        };
        match self.random.below(18) {
            0 => {
                self.killed += 1;
                server.kill9();
                thread::sleep(duration);
                server.restart();
                format!("{name} server killed, back after {duration:?}")
            }
            1 | 2 => {
                server.freeze();
                thread::sleep(duration);
                server.thaw();
                format!("{name} server frozen for {duration:?}")
            }
            3 | 4 => {
                if self.random.once_in(2) {
                    proxy.hole();
                } else {
                    proxy.existing().hole();
                }
                thread::sleep(duration);
                proxy.pass();
                format!("worker {worker} cut off from {name} for {duration:?}")
            }
            5 => {
                proxy.hole_down();
                thread::sleep(duration);
                proxy.pass();
                format!("worker {worker} heard nothing from {name} for {duration:?}")
            }
            6 => {
                proxy.existing().delay_up(duration);
                thread::sleep(Duration::from_millis(500));
                proxy.pass();
                format!("worker {worker} was {duration:?} late at {name}")
            }
            7 => {
                let cuts = 1 + self.random.below(20);
                for _ in 0..cuts {
                    proxy.cut_reply_once();
                    thread::sleep(Duration::from_millis(20));
                }
                proxy.pass();
                format!("worker {worker} lost {cuts} replies of {name}")
            }
            8 => {
                proxy.refuse();
                proxy.kill_all();
                thread::sleep(duration);
                proxy.pass();
                format!("worker {worker} could not connect to {name} for {duration:?}")
            }
            9 | 10 => {
                let pid = workers.pid(worker);
                stop_process(pid);
                thread::sleep(duration);
                continue_process(pid);
                format!("worker {worker} frozen for {duration:?}")
            }
            11 => {
                self.killed += 1;
                workers.replace(worker);
                format!("worker {worker} killed and replaced")
            }
            12 => {
                let kind = if self.random.once_in(2) { "normal" } else { "pubsub" };
                server.run::<u64>(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
                server.run::<()>("SCRIPT FLUSH");
                format!("{name} server cut every {kind} connection and forgot its scripts")
            }
            13 | 14 => {
                let refusal = REFUSALS[usize::try_from(self.random.below(3)).unwrap_or(0)];
                refuse(server, refusal, duration);
                format!("{name} server refused with {} for {duration:?}", refusal.name)
            }
            15 | 16 => {
                let late = self.random.millis(200..2500);
                crawl(proxy, late);
                format!("worker {worker} had {late:?} of latency to {name}")
            }
            _ => {
                self.place.volatile.run::<()>("FLUSHALL");
                "volatile server flushed".to_owned()
            }
        }
    }

    /// Strikes until the time is up, with short pauses in between.
    pub(crate) fn rage(
        &mut self,
        until: Instant,
        workers: &mut Workers,
        mut report: impl FnMut(&str),
    ) {
        while Instant::now() < until {
            let done = self.strike(workers);
            report(&done);
            thread::sleep(self.random.millis(50..700));
        }
    }
}

/// A state in which a server refuses writes.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    name: &'static str,
    begin: &'static str,
    end: &'static str,
}

const REFUSALS: [Refusal; 3] = [
    // To a primary that nobody can reach: the data stay.
    Refusal { name: "READONLY", begin: "REPLICAOF 127.0.0.1 1", end: "REPLICAOF NO ONE" },
    Refusal { name: "OOM", begin: "CONFIG SET maxmemory 1", end: "CONFIG SET maxmemory 0" },
    Refusal {
        name: "NOREPLICAS",
        begin: "CONFIG SET min-replicas-to-write 1",
        end: "CONFIG SET min-replicas-to-write 0",
    },
];

fn refuse(server: &Server, refusal: Refusal, duration: Duration) {
    server.run::<()>(refusal.begin);
    thread::sleep(duration);
    server.run::<()>(refusal.end);
}

/// Half of the latency on each way, for longer than it: above the time limit of a command, and now
/// and then above that of a wait and above a lease.
fn crawl(proxy: &Proxy, late: Duration) {
    proxy.delay_up(late / 2);
    proxy.delay_down(late / 2);
    thread::sleep(late * 2);
    proxy.pass();
}
