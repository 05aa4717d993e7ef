use std::thread;
use std::time::Duration;

use testbed::{Proxy, Server, ServerBinary};

use super::super::addresses::Addresses;
use super::super::fault::Fault;
use super::super::random::Random;
use super::super::target::{Refusal, Target};
use super::super::workers::Workers;
use super::{Place, hosts};
/// How long a manager may take to notice that a node is back.
const NOTICED: Duration = Duration::from_millis(1_500);

/// Independent servers that forget everything when they restart.
pub(super) struct OnQuorum {
    servers: Vec<Server>,
    proxies: Vec<Vec<Proxy>>,
    rejoin: Duration,
}

impl OnQuorum {
    pub(super) fn start(
        binary: &ServerBinary,
        workers: usize,
        nodes: usize,
        rejoin: Duration,
    ) -> Self {
        let start = |_| Server::builder().binary(binary.clone()).start();
        let servers: Vec<_> = (0..nodes).map(start).collect();
        let ways = |_| servers.iter().map(|server| Proxy::to(server.port())).collect();
        let proxies = (0..workers).map(ways).collect();
        // From here on they vote.
        thread::sleep(rejoin + NOTICED);
        Self { servers, proxies, rejoin }
    }

    fn target(&self, node: usize, random: &mut Random) -> Target<'_> {
        let (node, worker) = (node % self.servers.len(), random.index(self.proxies.len()));
        let (server, proxy) = (&self.servers[node], &self.proxies[worker][node]);
        let name = format!("node {node}");
        Target { server, name, worker, proxy, duration: random.fault_time() }
    }

    /// Kills or freezes a minority at once.
    fn fail(&self, first: usize, kills: bool, random: &mut Random) -> Fault {
        let failing = first..first + self.servers.len() / 2;
        let targets: Vec<_> = failing.map(|node| self.target(node, random)).collect();
        let described: Vec<_> = thread::scope(|scope| {
            let fail = |target| match kills {
                true => Target::kill_server(target),
                false => Target::freeze_server(target),
            };
            let failing: Vec<_> =
                targets.iter().map(|target| scope.spawn(move || fail(target))).collect();
            failing.into_iter().filter_map(|failed| failed.join().ok()).collect()
        });
        let fault = Fault::harmless(described.join(", "));
        // The next one fails only when these vote again.
        let rejoin = if kills { self.rejoin } else { Duration::ZERO };
        if !self.rejoin.is_zero() {
            thread::sleep(rejoin + NOTICED);
        }
        if kills { fault.killing() } else { fault }
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
            rejoin: self.rejoin,
        }
    }

    fn loses_always(&self) -> bool {
        false
    }

    fn owners(&self) -> Vec<String> {
        Vec::new()
    }

    fn servers(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    fn strike(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        let node = random.index(self.servers.len());
        let target = self.target(node, random);
        match random.below(8) {
            // Without `rejoin` one is killed soon after the other.
            4..6 if self.rejoin.is_zero() => self.fail(node, true, random),
            0 | 1 => self.fail(node, true, random),
            2 => self.fail(node, false, random),
            3 => Fault::harmless(target.refuse_writes(random.pick(&Refusal::OF_PRIMARIES))),
            _ => target.disturb(random, workers),
        }
    }

    fn locks_left(&self) -> Vec<String> {
        let keys = self.servers.iter().flat_map(Server::keys);
        keys.filter(|key| !key.contains(":~")).collect()
    }
}
