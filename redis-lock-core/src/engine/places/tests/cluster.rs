//! A cluster in memory: nodes that share one state, and each answer for their slots alone.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::{SLOTS, slot};
use crate::engine::Arbiter;
use crate::store::memory::{State, To};
use crate::store::wire::{Directory, Map, NodeName, Primary, Redirect};
use crate::store::{
    Answer, BoxFuture, Command, Connected, Connector, Event, Filled, Hints, Pulled, TaskWaker, Wire,
};
use crate::{Locks, LocksBuilder};

/// What keys begin with.
const NAMESPACE: &str = "lock:";

/// The outcome of a command at a node.
type Reply = Result<Result<Answer, Fault>, Redirect>;

#[derive(Default)]
pub(super) struct Nodes {
    state: State,
    owners: BTreeMap<u16, usize>,
    /// Slots on their way, and where to.
    migrating: BTreeMap<u16, usize>,
    /// Nodes that can't be reached.
    down: Vec<usize>,
    /// Nodes that don't answer who wants to connect.
    hanging: Vec<usize>,
    /// Nodes that execute, and don't answer for now.
    silent: Vec<usize>,
    /// Nodes that answer releases, and whose successors never hear of them.
    cut_off: Vec<usize>,
    /// Slots of which each node says that the next one has them.
    disputed: Vec<u16>,
    /// How often a command was sent to another node.
    pub(super) redirects: usize,
    epoch: u64,
    /// Whether the nodes contradict each other when they are asked for the map.
    pub(super) is_disputed: bool,
    looks: usize,
    /// Who executed what, in order.
    pub(super) log: Vec<(usize, String, &'static str)>,
    listeners: BTreeMap<(usize, Arc<str>), Hints>,
}

#[derive(Clone)]
pub(super) struct Cluster {
    nodes: Arc<Mutex<Nodes>>,
    changed: Arc<Notify>,
    /// Of each node: there may be something to read.
    answered: Arc<Vec<TaskWaker>>,
}

impl Cluster {
    /// Nodes that share the slots evenly.
    pub(super) fn of(count: usize) -> Self {
        let owners = (0..SLOTS).map(|slot| (slot, usize::from(slot) * count / usize::from(SLOTS)));
        let nodes = Nodes { owners: owners.collect(), epoch: 1, ..Nodes::default() };
        let answered = (0..count).map(|_| TaskWaker::default()).collect();
        Self {
            nodes: Arc::new(Mutex::new(nodes)),
            changed: Arc::default(),
            answered: Arc::new(answered),
        }
    }

    pub(super) fn locks(&self, builder: LocksBuilder) -> Locks {
        builder.simulated(&|manager| {
            let (cluster, manager) = (self.clone(), Arc::clone(manager));
            Arbiter::Several(Arc::new(Seen { cluster, manager }))
        })
    }

    pub(super) fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap()
    }

    /// A key whose slot this node has.
    pub(super) fn key_of(&self, node: usize) -> String {
        let mut keys = (0..).map(|number: u32| format!("key-{number}"));
        keys.find(|key| self.nodes().owners[&slot_of(key)] == node).unwrap()
    }

    /// Gives the slot of a key to another node, without a message to clients.
    pub(super) fn move_slot(&self, key: &str, to: usize) {
        self.nodes().migrating.remove(&slot_of(key));
        self.nodes().owners.insert(slot_of(key), to);
    }

    /// Begins to move a slot: what is not there any more is asked for at the other node.
    pub(super) fn begin_move(&self, key: &str, to: usize) {
        self.nodes().migrating.insert(slot_of(key), to);
    }

    /// Whether the nodes send everybody who asks for this key to and fro.
    pub(super) fn dispute(&self, key: &str, is_disputed: bool) {
        let mut nodes = self.nodes();
        nodes.disputed.retain(|slot| *slot != slot_of(key));
        if is_disputed {
            nodes.disputed.push(slot_of(key));
        }
    }

    /// Another node has everything that this one had, which is gone.
    pub(super) fn fail_over(&self, from: usize, to: usize) {
        let mut nodes = self.nodes();
        nodes.owners.values_mut().filter(|owner| **owner == from).for_each(|owner| *owner = to);
        nodes.epoch += 1;
    }

    pub(super) fn set_down(&self, node: usize, is_down: bool) {
        let mut nodes = self.nodes();
        nodes.down.retain(|down| *down != node);
        if is_down {
            nodes.down.push(node);
            nodes.listeners.retain(|(at, _), _| *at != node);
        }
        drop(nodes);
        self.answered[node].wake();
    }

    /// Ends the connections to a node; new ones are neither made nor refused.
    pub(super) fn vanish(&self, node: usize) {
        self.nodes().hanging.push(node);
        self.set_down(node, true);
    }

    pub(super) fn set_silent(&self, node: usize, is_silent: bool) {
        let mut nodes = self.nodes();
        nodes.silent.retain(|silent| *silent != node);
        if is_silent {
            nodes.silent.push(node);
        }
        drop(nodes);
        self.answered[node].wake();
    }

    /// Releases that this node answers from now on are lost with it.
    pub(super) fn cut_off(&self, node: usize) {
        self.nodes().cut_off.push(node);
    }

    pub(super) fn looks(&self) -> usize {
        self.nodes().looks
    }

    /// The keys that are held.
    pub(super) fn held(&self) -> Vec<String> {
        let nodes = self.nodes();
        let held = |(key, entry): (&String, &crate::store::memory::entry::Entry)| {
            (!entry.holders.is_empty()).then(|| key[NAMESPACE.len()..].to_owned())
        };
        nodes.state.entries.iter().filter_map(held).collect()
    }

    fn execute(&self, node: usize, manager: &Arc<str>, command: &Command, asking: bool) -> Reply {
        let slot = slot(command.names.main());
        let mut nodes = self.nodes();
        if nodes.disputed.contains(&slot) {
            nodes.redirects += 1;
            return Err(Redirect::Moved { slot, to: name((node + 1) % self.answered.len()) });
        }
        let owner = nodes.owners[&slot];
        let target = nodes.migrating.get(&slot).copied();
        let is_here = nodes.state.entries.contains_key(command.names.main());
        match target {
            Some(to) if owner == node && !is_here => return Err(Redirect::Ask { to: name(to) }),
            Some(to) if to == node && asking => {}
            _ if owner == node => {}
            _ => return Err(Redirect::Moved { slot, to: name(owner) }),
        }
        let verb = verb_of(command);
        let main = command.names.main();
        let key = main.strip_prefix(NAMESPACE).unwrap_or(main).to_owned();
        nodes.log.push((node, key, verb));
        if verb == "release" && nodes.cut_off.contains(&node) {
            return Ok(Ok(Answer::Done));
        }
        let Nodes { state, listeners, .. } = &mut *nodes;
        let mut tell = |to: To<'_>, event: Option<Event>| {
            let Some(hints) = listeners.get(&(node, to.name().into())) else { return false };
            event.map_or_else(|| !hints.is_closed(), |event| hints.send(event))
        };
        Ok(state.answer(command, manager, Moment::now(), &mut tell))
    }
}

fn slot_of(key: &str) -> u16 {
    slot(&[NAMESPACE, key].concat())
}

fn verb_of(command: &Command) -> &'static str {
    use crate::store::Verb;
    match command.verb {
        Verb::Take { .. } | Verb::Acquire(_) => "acquire",
        Verb::Renew { .. } => "renew",
        Verb::Release { .. } => "release",
        _ => "other",
    }
}

fn name(node: usize) -> NodeName {
    format!("node-{node}:1").into()
}

fn number(name: &str) -> usize {
    let (_, number) = name.split_once('-').unwrap();
    number.split_once(':').unwrap().0.parse().unwrap()
}

/// The cluster as a manager sees it.
struct Seen {
    cluster: Cluster,
    manager: Arc<str>,
}

impl Directory for Seen {
    fn look(&self, _: Vec<NodeName>) -> BoxFuture<'_, Result<Map, Fault>> {
        let mut nodes = self.cluster.nodes();
        nodes.looks += 1;
        if nodes.down.len() == self.cluster.answered.len() {
            let fault = Fault::new(FaultClass::Refused, "no node can be reached");
            return Box::pin(std::future::ready(Err(fault)));
        }
        let primary = |node: usize| {
            let slots = nodes.owners.iter().filter(|(_, owner)| **owner == node);
            Primary { name: name(node), slots: slots.map(|(slot, _)| *slot..=*slot).collect() }
        };
        let primaries = (0..self.cluster.answered.len()).map(primary);
        let primaries = primaries.filter(|primary| !primary.slots.is_empty()).collect();
        let (epoch, is_disputed) = (nodes.epoch, nodes.is_disputed);
        let map = Map { epoch, is_healthy: true, is_disputed, primaries };
        Box::pin(std::future::ready(Ok(map)))
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.cluster.changed.notified())
    }

    fn look_interval(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn connector(&self, node: &NodeName) -> Arc<dyn Connector> {
        let (cluster, manager) = (self.cluster.clone(), Arc::clone(&self.manager));
        Arc::new(Node { cluster, manager, node: number(node) })
    }
}

#[derive(Clone)]
struct Node {
    cluster: Cluster,
    manager: Arc<str>,
    node: usize,
}

impl Node {
    fn is_down(&self) -> bool {
        self.cluster.nodes().down.contains(&self.node)
    }
}

impl Connector for Node {
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>> {
        if self.cluster.nodes().hanging.contains(&self.node) {
            return Box::pin(std::future::pending());
        }
        if self.is_down() {
            let fault = Fault::new(FaultClass::Refused, "connection refused");
            return Box::pin(std::future::ready(Err(fault)));
        }
        let wire = NodeWire { node: self.clone(), replies: VecDeque::new(), has_news: false };
        Box::pin(std::future::ready(Ok(Box::new(wire) as Connected)))
    }

    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault> {
        let key = (self.node, Arc::clone(&self.manager));
        self.cluster.nodes().listeners.insert(key, hints.clone());
        hints.send(Event::Listening { hints_enabled: true });
        Box::pin(std::future::pending())
    }
}

struct NodeWire {
    node: Node,
    replies: VecDeque<(u64, Command, Reply)>,
    has_news: bool,
}

impl NodeWire {
    fn execute(&mut self, seq: u64, command: Command, asking: bool) {
        let Node { cluster, manager, node } = &self.node;
        let reply = cluster.execute(*node, manager, &command, asking);
        self.replies.push_back((seq, command, reply));
        self.has_news = true;
    }
}

impl Wire for NodeWire {
    fn push(&mut self, seq: u64, command: Command) {
        self.execute(seq, command, false);
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        self.execute(seq, command, true);
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_news) {
            self.node.cluster.answered[self.node.node].wake();
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn fill(&mut self) -> io::Result<Filled> {
        if self.node.is_down() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(Filled { received: !self.replies.is_empty(), more: false })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.node.cluster.answered[self.node.node].poll_woken(context).map(Ok)
    }

    fn pull(&mut self, _: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if self.node.cluster.nodes().silent.contains(&self.node.node) {
            return None;
        }
        let (seq, command, reply) = self.replies.pop_front()?;
        Some(match reply {
            Ok(answer) => Pulled::Done(seq, answer),
            Err(redirect) => Pulled::Redirected(seq, command, redirect),
        })
    }
}
