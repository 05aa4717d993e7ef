use std::thread;
use std::time::Duration;

use testbed::{Node, Proxy, Sentinel, ServerBinary};

use super::super::addresses::Addresses;
use super::super::fault::Fault;
use super::super::random::Random;
use super::super::target::{Refusal, Target};
use super::super::workers::Workers;
use super::{Place, hosts, port_map, proxies_to};

/// Much shorter than the silence after which sentinels replace a server.
const HARMLESS_FREEZE: Duration = Duration::from_millis(400);

/// 1 + 1 servers and 3 sentinels. Durable locks are those that the replica confirms.
pub(super) struct OnSentinel {
    group: Sentinel,
    /// Of the servers, then of the sentinels.
    ports: Vec<u16>,
    proxies: Vec<Vec<Proxy>>,
}

impl OnSentinel {
    pub(super) fn start(binary: &ServerBinary, workers: usize) -> Self {
        let keep = ["--appendonly", "yes", "--appendfsync", "always"];
        let group = Sentinel::builder().binary(binary.clone()).arguments(keep).start();
        let ports: Vec<_> = nodes(&group).map(Node::port).collect();
        let proxies = proxies_to(&ports, workers);
        Self { group, ports, proxies }
    }

    fn target<'a>(&'a self, node: &'a Node, random: &mut Random) -> Target<'a> {
        let worker = random.index(self.proxies.len());
        let index = self.ports.iter().position(|port| *port == node.port()).unwrap_or(0);
        let proxy = &self.proxies[worker][index];
        let role = match () {
            () if index >= self.group.servers().len() => "sentinel",
            () if node.is_primary() => "primary",
            () => "replica",
        };
        let name = format!("{role} {}", node.port());
        Target { server: node.server(), name, worker, proxy, duration: random.fault_time() }
    }

    /// Kills the primary. It comes back, mostly when another has its place.
    fn kill(&self, random: &mut Random) -> Fault {
        let node = self.group.primary();
        let target = self.target(node, random);
        self.group.kill9(node);
        let fate = if random.once_in(3) {
            thread::sleep(target.duration);
            format!("back after {:?}", target.duration)
        } else {
            format!("replaced by {}", self.group.until_replaced(node).port())
        };
        self.restart(node);
        Fault::losing(format!("{} killed, {fate}", target.name)).killing()
    }

    fn kill_replica(&self, random: &mut Random) -> Fault {
        let target = self.target(self.group.replica(), random);
        let description = target.kill_server();
        self.group.until_ok();
        Fault::harmless(description).killing()
    }

    /// It answers commands that it received before it was replaced, and these answers come too
    /// late.
    fn freeze_until_replaced(&self, random: &mut Random) -> Fault {
        let node = self.group.primary();
        let target = self.target(node, random);
        node.server().freeze();
        let successor = self.group.until_replaced(node);
        thread::sleep(target.duration);
        node.server().thaw();
        self.group.until_ok();
        Fault::losing(format!("{} frozen until {} had its place", target.name, successor.port()))
    }

    fn freeze(&self, random: &mut Random) -> Fault {
        let node = random.pick(&nodes(&self.group).collect::<Vec<_>>());
        let target = self.target(node, random);
        let description = target.freeze_server();
        self.group.until_ok();
        let is_harmless = !target.name.starts_with("primary") || target.duration < HARMLESS_FREEZE;
        if is_harmless { Fault::harmless(description) } else { Fault::losing(description) }
    }

    fn fail_over(&self) -> Fault {
        let before = self.group.primary();
        let successor = self.group.fail_over();
        Fault::losing(format!("{} replaced by {} on request", before.port(), successor.port()))
    }

    fn kill_sentinel(&self, random: &mut Random) -> Fault {
        let node = random.pick(&self.group.sentinels().iter().collect::<Vec<_>>());
        let description = self.target(node, random).kill_server();
        self.group.until_ok();
        Fault::harmless(description).killing()
    }

    fn restart(&self, node: &Node) {
        node.server().restart();
        self.group.until_ok();
    }

    /// Of a connection to a server or to a sentinel.
    fn disturb(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        if random.once_in(3) {
            let node = random.pick(&self.group.sentinels().iter().collect::<Vec<_>>());
            return Fault::harmless(self.target(node, random).disturb_network(random));
        }
        self.target(self.group.primary(), random).disturb(random, workers)
    }
}

fn nodes(group: &Sentinel) -> impl Iterator<Item = &Node> {
    group.servers().iter().chain(group.sentinels())
}

impl Place for OnSentinel {
    fn addresses(&self, worker: usize) -> Addresses {
        let proxies = &self.proxies[worker];
        let sentinels = hosts(&proxies[self.group.servers().len()..]);
        let url = format!("redis-sentinel://{sentinels}/{}", self.group.name());
        let direct: Vec<_> = self.group.servers().iter().map(Node::url).collect();
        Addresses {
            durable: url.clone(),
            volatile: url,
            direct: direct.join(","),
            ports: port_map(&self.ports, proxies),
            replicas: 1,
            rejoin: Duration::ZERO,
        }
    }

    fn loses_always(&self) -> bool {
        false
    }

    fn owners(&self) -> Vec<String> {
        self.group.until_ok();
        vec![self.group.primary().port().to_string()]
    }

    fn servers(&self) -> Vec<String> {
        self.group.servers().iter().map(Node::url).collect()
    }

    fn strike(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        match random.below(16) {
            0 | 1 => self.kill(random),
            2 => self.kill_replica(random),
            3 => self.freeze_until_replaced(random),
            4 => self.freeze(random),
            5 | 6 => self.fail_over(),
            7 => self.kill_sentinel(random),
            8 => {
                let target = self.target(self.group.primary(), random);
                Fault::harmless(target.refuse_writes(random.pick(&Refusal::OF_PRIMARIES)))
            }
            _ => self.disturb(random, workers),
        }
    }

    fn locks_left(&self) -> Vec<String> {
        let mut keys = self.group.primary().server().keys();
        keys.retain(|key| !key.contains(":~"));
        keys
    }
}
