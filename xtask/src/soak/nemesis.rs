use std::thread;
use std::time::Instant;

use super::TTL;
use super::place::Single;
use super::random::Random;
use super::target::{REFUSALS, Target};
use super::workers::Workers;

/// Causes random faults of servers, network and workers.
pub(crate) struct Nemesis<'a> {
    pub(crate) place: &'a Single,
    pub(crate) random: Random,
    /// How many servers and workers it has killed.
    pub(crate) killed: u64,
}

impl<'a> Nemesis<'a> {
    /// Causes one fault, and returns its description. The fault is over when this returns.
    fn strike(&mut self, workers: &mut Workers) -> String {
        let target = self.target();
        match self.random.below(18) {
            0 => {
                self.killed += 1;
                target.kill_server()
            }
            1 | 2 => target.freeze_server(),
            3 | 4 => target.cut_off(self.random.once_in(2)),
            5 => target.hold_replies(),
            6 => target.delay_requests(),
            7 => target.cut_replies(1 + self.random.below(20)),
            8 => target.refuse_connections(),
            9 | 10 => target.freeze_worker(workers),
            11 => {
                self.killed += 1;
                target.replace_worker(workers)
            }
            12 => target.drop_clients(if self.random.once_in(2) { "normal" } else { "pubsub" }),
            13 | 14 => {
                let refusal = self.random.below(REFUSALS.len() as u64);
                target.refuse_writes(REFUSALS[usize::try_from(refusal).unwrap_or(0)])
            }
            15 | 16 => target.crawl(self.random.millis(200..2500)),
            _ => {
                self.place.volatile.run::<()>("FLUSHALL");
                "volatile server flushed".to_owned()
            }
        }
    }

    fn target(&mut self) -> Target<'a> {
        let volatile = self.random.once_in(2);
        let (server, name) = self.place.server(volatile);
        let worker = self.random.below(self.place.workers() as u64);
        let worker = usize::try_from(worker).unwrap_or(0);
        let proxy = self.place.proxy(worker, volatile);
        // From milliseconds to longer than a lease.
        let longest = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX) * 2;
        let duration = if self.random.once_in(2) {
            self.random.millis(1..200)
        } else {
            self.random.millis(200..longest)
        };
        Target { server, name, worker, proxy, duration }
    }

    /// Causes faults until the time is over, with short pauses in between.
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
