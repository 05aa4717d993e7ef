use std::thread;
use std::time::Duration;

use testbed::{Proxy, Server, continue_process, stop_process};

use super::fault::Fault;
use super::random::Random;
use super::workers::Workers;

/// The target of the next fault, and how long it lasts. Each method causes one fault and returns
/// its description. The fault is over when the method returns.
pub(super) struct Target<'a> {
    pub(super) server: &'a Server,
    /// What the server is called.
    pub(super) name: String,
    pub(super) worker: usize,
    /// Between the worker and the server.
    pub(super) proxy: &'a Proxy,
    pub(super) duration: Duration,
}

impl Target<'_> {
    pub(super) fn kill_server(&self) -> String {
        self.server.kill9();
        thread::sleep(self.duration);
        self.server.restart();
        format!("{} killed, back after {:?}", self.name, self.duration)
    }

    pub(super) fn freeze_server(&self) -> String {
        self.server.freeze();
        thread::sleep(self.duration);
        self.server.thaw();
        format!("{} frozen for {:?}", self.name, self.duration)
    }

    /// Disturbs the worker or its connections; the server stays as it is.
    pub(super) fn disturb(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        let worker = workers.number(self.worker);
        let description = match random.below(12) {
            0 | 1 => self.freeze_worker(workers),
            2 => return Fault::harmless(self.replace_worker(workers)).killing().of(worker),
            3 => {
                let kind = random.pick(&["normal", "pubsub"]);
                return Fault::harmless(self.drop_clients(kind));
            }
            _ => self.disturb_network(random),
        };
        Fault::harmless(description).of(worker)
    }

    pub(super) fn disturb_network(&self, random: &mut Random) -> String {
        match random.below(8) {
            0 | 1 => self.cut_off(random.once_in(2)),
            2 => self.hold_replies(),
            3 => self.delay_requests(),
            4 => self.cut_replies(1 + random.below(20)),
            5 => self.refuse_connections(),
            _ => self.crawl(random.millis(200..2500)),
        }
    }

    /// Every client's connections of a kind, and the scripts.
    fn drop_clients(&self, kind: &str) -> String {
        self.server.run::<u64>(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
        self.server.run::<()>("SCRIPT FLUSH");
        format!("{} cut every {kind} connection and forgot its scripts", self.name)
    }

    pub(super) fn refuse_writes(&self, refusal: Refusal) -> String {
        self.server.run::<()>(refusal.begin);
        thread::sleep(self.duration);
        self.server.run::<()>(refusal.end);
        format!("{} refused with {} for {:?}", self.name, refusal.name, self.duration)
    }

    /// Of the connections that there are, or of new ones too.
    fn cut_off(&self, new_too: bool) -> String {
        if new_too {
            self.proxy.hole();
        } else {
            self.proxy.existing().hole();
        }
        thread::sleep(self.duration);
        self.proxy.pass();
        format!("worker {} cut off from {} for {:?}", self.worker, self.name, self.duration)
    }

    fn hold_replies(&self) -> String {
        self.proxy.hole_down();
        thread::sleep(self.duration);
        self.proxy.pass();
        format!("worker {} heard nothing from {} for {:?}", self.worker, self.name, self.duration)
    }

    fn delay_requests(&self) -> String {
        self.proxy.existing().delay_up(self.duration);
        thread::sleep(Duration::from_millis(500));
        self.proxy.pass();
        format!("worker {} was {:?} late at {}", self.worker, self.duration, self.name)
    }

    fn cut_replies(&self, cuts: u64) -> String {
        for _ in 0..cuts {
            self.proxy.cut_reply_once();
            thread::sleep(Duration::from_millis(20));
        }
        self.proxy.pass();
        format!("worker {} lost {cuts} replies of {}", self.worker, self.name)
    }

    fn refuse_connections(&self) -> String {
        self.proxy.refuse();
        self.proxy.kill_all();
        thread::sleep(self.duration);
        self.proxy.pass();
        format!("worker {} could not connect to {} for {:?}", self.worker, self.name, self.duration)
    }

    /// Half of the latency on each way, for longer than it: above the time limit of a command, and
    /// now and then above that of a wait and above a lease.
    fn crawl(&self, late: Duration) -> String {
        self.proxy.delay_up(late / 2);
        self.proxy.delay_down(late / 2);
        thread::sleep(late * 2);
        self.proxy.pass();
        format!("worker {} had {late:?} of latency to {}", self.worker, self.name)
    }

    fn freeze_worker(&self, workers: &Workers) -> String {
        let pid = workers.pid(self.worker);
        stop_process(pid);
        thread::sleep(self.duration);
        continue_process(pid);
        format!("worker {} frozen for {:?}", self.worker, self.duration)
    }

    fn replace_worker(&self, workers: &mut Workers) -> String {
        workers.replace(self.worker);
        format!("worker {} killed and replaced", self.worker)
    }
}

/// A state in which a server refuses writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    name: &'static str,
    begin: &'static str,
    end: &'static str,
}

/// Of a primary that no process can reach: the data stay.
const READONLY: Refusal =
    Refusal { name: "READONLY", begin: "REPLICAOF 127.0.0.1 1", end: "REPLICAOF NO ONE" };
const OOM: Refusal =
    Refusal { name: "OOM", begin: "CONFIG SET maxmemory 1", end: "CONFIG SET maxmemory 0" };
const NOREPLICAS: Refusal = Refusal {
    name: "NOREPLICAS",
    begin: "CONFIG SET min-replicas-to-write 9",
    end: "CONFIG SET min-replicas-to-write 0",
};

impl Refusal {
    pub(super) const ALL: [Self; 3] = [READONLY, OOM, NOREPLICAS];
    /// Those that leave a server in its role.
    pub(super) const OF_PRIMARIES: [Self; 2] = [OOM, NOREPLICAS];
}
