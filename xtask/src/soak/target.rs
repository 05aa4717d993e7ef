use std::thread;
use std::time::Duration;

use testbed::{Proxy, Server, continue_process, stop_process};

use super::workers::Workers;

/// The target of the next fault, and how long it lasts. Each method causes one fault and returns
/// its description. The fault is over when the method returns.
pub(super) struct Target<'a> {
    pub(super) server: &'a Server,
    /// What the server is called.
    pub(super) name: &'static str,
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
        format!("{} server killed, back after {:?}", self.name, self.duration)
    }

    pub(super) fn freeze_server(&self) -> String {
        self.server.freeze();
        thread::sleep(self.duration);
        self.server.thaw();
        format!("{} server frozen for {:?}", self.name, self.duration)
    }

    /// Every client's connections of a kind, and the scripts.
    pub(super) fn drop_clients(&self, kind: &str) -> String {
        self.server.run::<u64>(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
        self.server.run::<()>("SCRIPT FLUSH");
        format!("{} server cut every {kind} connection and forgot its scripts", self.name)
    }

    pub(super) fn refuse_writes(&self, refusal: Refusal) -> String {
        self.server.run::<()>(refusal.begin);
        thread::sleep(self.duration);
        self.server.run::<()>(refusal.end);
        format!("{} server refused with {} for {:?}", self.name, refusal.name, self.duration)
    }

    /// Of the connections that there are, or of new ones too.
    pub(super) fn cut_off(&self, new_too: bool) -> String {
        if new_too {
            self.proxy.hole();
        } else {
            self.proxy.existing().hole();
        }
        thread::sleep(self.duration);
        self.proxy.pass();
        format!("worker {} cut off from {} for {:?}", self.worker, self.name, self.duration)
    }

    pub(super) fn hold_replies(&self) -> String {
        self.proxy.hole_down();
        thread::sleep(self.duration);
        self.proxy.pass();
        format!("worker {} heard nothing from {} for {:?}", self.worker, self.name, self.duration)
    }

    pub(super) fn delay_requests(&self) -> String {
        self.proxy.existing().delay_up(self.duration);
        thread::sleep(Duration::from_millis(500));
        self.proxy.pass();
        format!("worker {} was {:?} late at {}", self.worker, self.duration, self.name)
    }

    pub(super) fn cut_replies(&self, cuts: u64) -> String {
        for _ in 0..cuts {
            self.proxy.cut_reply_once();
            thread::sleep(Duration::from_millis(20));
        }
        self.proxy.pass();
        format!("worker {} lost {cuts} replies of {}", self.worker, self.name)
    }

    pub(super) fn refuse_connections(&self) -> String {
        self.proxy.refuse();
        self.proxy.kill_all();
        thread::sleep(self.duration);
        self.proxy.pass();
        format!("worker {} could not connect to {} for {:?}", self.worker, self.name, self.duration)
    }

    /// Half of the latency on each way, for longer than it: above the time limit of a command, and
    /// now and then above that of a wait and above a lease.
    pub(super) fn crawl(&self, late: Duration) -> String {
        self.proxy.delay_up(late / 2);
        self.proxy.delay_down(late / 2);
        thread::sleep(late * 2);
        self.proxy.pass();
        format!("worker {} had {late:?} of latency to {}", self.worker, self.name)
    }

    pub(super) fn freeze_worker(&self, workers: &Workers) -> String {
        let pid = workers.pid(self.worker);
        stop_process(pid);
        thread::sleep(self.duration);
        continue_process(pid);
        format!("worker {} frozen for {:?}", self.worker, self.duration)
    }

    pub(super) fn replace_worker(&self, workers: &mut Workers) -> String {
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

pub(super) const REFUSALS: [Refusal; 3] = [
    // To a primary that nobody can reach: the data stay.
    Refusal { name: "READONLY", begin: "REPLICAOF 127.0.0.1 1", end: "REPLICAOF NO ONE" },
    Refusal { name: "OOM", begin: "CONFIG SET maxmemory 1", end: "CONFIG SET maxmemory 0" },
    Refusal {
        name: "NOREPLICAS",
        begin: "CONFIG SET min-replicas-to-write 1",
        end: "CONFIG SET min-replicas-to-write 0",
    },
];
