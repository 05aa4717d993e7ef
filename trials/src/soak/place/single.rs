use std::time::Duration;

use testbed::{Proxy, Server, ServerBinary};

use super::super::addresses::Addresses;
use super::super::fault::Fault;
use super::super::random::Random;
use super::super::target::{Refusal, Target};
use super::super::workers::Workers;
use super::Place;

/// A server that keeps its data and one that loses them.
pub(super) struct OnSingle {
    durable: Server,
    volatile: Server,
    proxies: Vec<[Proxy; 2]>,
}

impl OnSingle {
    pub(super) fn start(binary: &ServerBinary, workers: usize) -> Self {
        // Written and synced before each answer, so that a crash loses nothing that was granted.
        let durable = Server::builder()
            .binary(binary.clone())
            .arguments(["--appendonly", "yes", "--appendfsync", "always"])
            .start();
        let volatile = Server::builder().binary(binary.clone()).start();
        let proxies =
            (0..workers).map(|_| [Proxy::to(durable.port()), Proxy::to(volatile.port())]).collect();
        Self { durable, volatile, proxies }
    }

    fn target(&self, random: &mut Random) -> Target<'_> {
        let is_volatile = random.once_in(2);
        let (server, name) =
            if is_volatile { (&self.volatile, "volatile") } else { (&self.durable, "durable") };
        let worker = random.index(self.proxies.len());
        let proxy = &self.proxies[worker][usize::from(is_volatile)];
        let duration = random.fault_time();
        Target { server, name: format!("{name} server"), worker, proxy, duration }
    }
}

impl Place for OnSingle {
    fn addresses(&self, worker: usize) -> Addresses {
        let [durable, volatile] = &self.proxies[worker];
        Addresses {
            durable: durable.url(),
            volatile: volatile.url(),
            direct: self.durable.url(),
            ports: String::new(),
            replicas: 0,
            rejoin: Duration::ZERO,
        }
    }

    fn loses_always(&self) -> bool {
        true
    }

    fn owners(&self) -> Vec<String> {
        Vec::new()
    }

    fn servers(&self) -> Vec<String> {
        vec![self.durable.url(), self.volatile.url()]
    }

    fn strike(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        let target = self.target(random);
        match random.below(18) {
            0 => Fault::harmless(target.kill_server()).killing(),
            1 | 2 => Fault::harmless(target.freeze_server()),
            3 | 4 => Fault::harmless(target.refuse_writes(random.pick(&Refusal::ALL))),
            5 => {
                self.volatile.run::<()>("FLUSHALL");
                Fault::harmless("volatile server flushed".to_owned())
            }
            _ => target.disturb(random, workers),
        }
    }

    fn locks_left(&self) -> Vec<String> {
        let keys = [&self.durable, &self.volatile].into_iter().flat_map(Server::keys);
        keys.filter(|key| !key.contains(":~")).collect()
    }
}
