use std::thread;
use std::time::Duration;

use testbed::{Proxy, Server, ServerBinary};

use super::super::addresses::Addresses;
use super::super::fault::Fault;
use super::super::random::Random;
use super::super::target::{Refusal, Target};
use super::super::workers::Workers;
use super::{Place, hosts};
use crate::soak::REJOIN;

/// How long a manager may take to notice that a node is back.
const NOTICED: Duration = Duration::from_millis(1_500);

/// Three independent servers that forget everything when they restart.
pub(super) struct OnQuorum {
    servers: Vec<Server>,
    proxies: Vec<Vec<Proxy>>,
}

impl OnQuorum {
    pub(super) fn start(binary: &ServerBinary, workers: usize) -> Self {
        let start = |_| Server::builder().binary(binary.clone()).start();
        let servers: Vec<_> = (0..3).map(start).collect();
        let ways = |_| servers.iter().map(|server| Proxy::to(server.port())).collect();
        let proxies = (0..workers).map(ways).collect();
        // From here on they vote.
        thread::sleep(REJOIN + NOTICED);
        Self { servers, proxies }
    }

    fn target(&self, random: &mut Random) -> Target<'_> {
        let (node, worker) = (random.index(self.servers.len()), random.index(self.proxies.len()));
        let (server, proxy) = (&self.servers[node], &self.proxies[worker][node]);
        let name = format!("node {node}");
        Target { server, name, worker, proxy, duration: random.fault_time() }
    }
}

impl Place for OnQuorum {
    fn addresses(&self, worker: usize) -> Addresses {
        let url = format!("redis-quorum://{}", hosts(&self.proxies[worker]));
        Addresses {
            durable: url.clone(),
            volatile: url,
            direct: self.servers[0].url(),
            ports: String::new(),
            replicas: 0,
        }
    }

    fn loses_always(&self) -> bool {
        false
    }

    fn owners(&self) -> Vec<String> {
        Vec::new()
    }

    fn strike(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        let target = self.target(random);
        // The next node fails only when this one votes again.
        match random.below(8) {
            0 | 1 => {
                let fault = Fault::harmless(target.kill_server()).killing();
                thread::sleep(REJOIN + NOTICED);
                fault
            }
            2 => {
                let fault = Fault::harmless(target.freeze_server());
                thread::sleep(NOTICED);
                fault
            }
            3 => Fault::harmless(target.refuse_writes(random.pick(&Refusal::OF_PRIMARIES))),
            _ => target.disturb(random, workers),
        }
    }

    fn locks_left(&self) -> Vec<String> {
        let keys = self.servers.iter().flat_map(Server::keys);
        keys.filter(|key| !key.contains(":~")).collect()
    }
}
