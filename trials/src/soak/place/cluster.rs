use std::thread;
use std::time::Duration;

use testbed::{Cluster, FailOver, Node, Proxy, ServerBinary};

use super::super::addresses::Addresses;
use super::super::fault::Fault;
use super::super::kind::every_lock;
use super::super::random::Random;
use super::super::target::{Refusal, Target};
use super::super::workers::Workers;
use super::{Place, hosts, port_map, proxies_to};

/// A node may be replaced after a silence that is shorter than the nodes' timeout: as long as they
/// wait for each other is as long as they had waited before.
const HARMLESS_FREEZE: Duration = Duration::from_millis(300);

/// 3 + 3 nodes. Durable locks are those that a replica confirms.
pub(super) struct OnCluster {
    cluster: Cluster,
    ports: Vec<u16>,
    proxies: Vec<Vec<Proxy>>,
}

impl OnCluster {
    pub(super) fn start(binary: &ServerBinary, workers: usize) -> Self {
        let cluster = Cluster::builder().binary(binary.clone()).durable().start();
        let ports: Vec<_> = cluster.nodes().iter().map(Node::port).collect();
        let proxies = proxies_to(&ports, workers);
        Self { cluster, ports, proxies }
    }

    fn target<'a>(&'a self, node: &'a Node, random: &mut Random) -> Target<'a> {
        let worker = random.index(self.proxies.len());
        let index = self.ports.iter().position(|port| *port == node.port()).unwrap_or(0);
        let proxy = &self.proxies[worker][index];
        let role = if node.is_primary() { "primary" } else { "replica" };
        let name = format!("{role} {}", node.port());
        Target { server: node.server(), name, worker, proxy, duration: random.fault_time() }
    }

    fn primary(&self, random: &mut Random) -> &Node {
        random.pick(&self.cluster.primaries())
    }

    /// Kills it. It comes back, mostly when another has its place.
    fn kill(&self, node: &Node, random: &mut Random) -> Fault {
        let (target, slot) = (self.target(node, random), self.slot_at(node));
        self.cluster.kill9(node);
        let fate = if node_is_missed(random) {
            let successor = self.cluster.until_replaced(node, slot);
            format!("replaced by {}", successor.port())
        } else {
            thread::sleep(target.duration);
            format!("back after {:?}", target.duration)
        };
        self.cluster.restart(node);
        Fault::losing(format!("{} killed, {fate}", target.name)).killing()
    }

    fn kill_replica(&self, random: &mut Random) -> Fault {
        let replica = self.cluster.replica_of(self.primary(random));
        let target = self.target(replica, random);
        let description = target.kill_server();
        self.cluster.until_ok();
        Fault::harmless(description).killing()
    }

    /// It answers commands that it received before it was replaced, and these answers come too
    /// late.
    fn freeze_until_replaced(&self, random: &mut Random) -> Fault {
        let node = self.primary(random);
        let (target, slot) = (self.target(node, random), self.slot_at(node));
        node.server().freeze();
        let successor = self.cluster.until_replaced(node, slot);
        thread::sleep(target.duration);
        node.server().thaw();
        self.cluster.until_ok();
        Fault::losing(format!("{} frozen until {} had its place", target.name, successor.port()))
    }

    fn freeze(&self, random: &mut Random) -> Fault {
        let node = random.pick(&self.cluster.nodes().iter().collect::<Vec<_>>());
        let (was_primary, target) = (node.is_primary(), self.target(node, random));
        let description = target.freeze_server();
        self.cluster.until_ok();
        let is_harmless = !was_primary || target.duration < HARMLESS_FREEZE;
        if is_harmless { Fault::harmless(description) } else { Fault::losing(description) }
    }

    fn fail_over(&self, how: FailOver, random: &mut Random) -> Fault {
        let primary = self.primary(random);
        let replica = self.cluster.replica_of(primary);
        self.cluster.until_ok();
        self.cluster.fail_over(replica, how);
        let description = format!("{} replaced by {}: {how:?}", primary.port(), replica.port());
        if how == FailOver::Plain { Fault::moving(description) } else { Fault::losing(description) }
    }

    /// The slot of a lock, and a primary that does not have it.
    fn slot_and_target(&self, random: &mut Random) -> (u16, &Node) {
        let slot = self.cluster.slot_of(&format!("lock:{}", random.pick(&every_lock())));
        let mut others = self.cluster.primaries();
        others.retain(|node| node.id() != self.cluster.owner(slot).id());
        (slot, random.pick(&others))
    }

    fn move_slot(&self, random: &mut Random) -> Fault {
        let (slot, to) = self.slot_and_target(random);
        let at_once = random.once_in(2) && self.cluster.move_slots_atomically(slot..=slot, to);
        if !at_once {
            self.cluster.move_slots(slot..=slot, to);
        }
        let way = if at_once { "in one step" } else { "key by key" };
        Fault::harmless(format!("slot {slot} moved to {} {way}", to.port()))
    }

    /// Leaves a slot half moved for a while.
    fn move_slot_slowly(&self, random: &mut Random) -> Fault {
        let (slot, to) = self.slot_and_target(random);
        let duration = random.fault_time();
        let slot_move = self.cluster.begin_move(slot, to);
        for key in slot_move.keys_left() {
            if random.once_in(2) {
                slot_move.move_key(&key);
            }
        }
        thread::sleep(duration);
        slot_move.finish();
        let port = to.port();
        Fault::harmless(format!("slot {slot} half moved to {port} for {duration:?}, then wholly"))
    }

    /// A slot that this node has.
    fn slot_at(&self, node: &Node) -> u16 {
        self.cluster.slot_of(&self.cluster.name_at(node, "slot", ToOwned::to_owned))
    }
}

/// Whether a node that was killed stays away until another has its place.
fn node_is_missed(random: &mut Random) -> bool {
    !random.once_in(3)
}

impl Place for OnCluster {
    fn addresses(&self, worker: usize) -> Addresses {
        let proxies = &self.proxies[worker];
        let url = format!("redis-cluster://{}", hosts(proxies));
        Addresses {
            durable: url.clone(),
            volatile: url,
            direct: self.cluster.urls().join(","),
            ports: port_map(&self.ports, proxies),
            replicas: 1,
            rejoin: Duration::ZERO,
        }
    }

    fn loses_always(&self) -> bool {
        false
    }

    fn owners(&self) -> Vec<String> {
        self.cluster.until_ok();
        let primaries = self.cluster.primaries();
        primaries.into_iter().map(|node| node.id().to_owned()).collect()
    }

    fn servers(&self) -> Vec<String> {
        self.cluster.nodes().iter().map(Node::url).collect()
    }

    fn strike(&self, random: &mut Random, workers: &mut Workers) -> Fault {
        let node = self.primary(random);
        match random.below(20) {
            0 | 1 => self.kill(node, random),
            2 => self.kill_replica(random),
            3 => self.freeze_until_replaced(random),
            4 => self.freeze(random),
            5 | 6 => self.fail_over(FailOver::Plain, random),
            7 => self.fail_over(FailOver::Force, random),
            8 => self.fail_over(FailOver::TakeOver, random),
            9 | 10 => self.move_slot(random),
            11 => self.move_slot_slowly(random),
            12 => {
                let refusal = random.pick(&Refusal::OF_PRIMARIES);
                Fault::harmless(self.target(node, random).refuse_writes(refusal))
            }
            _ => self.target(node, random).disturb(random, workers),
        }
    }

    fn locks_left(&self) -> Vec<String> {
        let mut keys = self.cluster.keys();
        keys.retain(|key| !key.contains(":~"));
        keys
    }
}
