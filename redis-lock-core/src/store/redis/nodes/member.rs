//! One node of several, as its connection sees it.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::cluster_view::{channel_slot, field};
use super::node_list::{Clock, Listed, NodeList};
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::status::{ServerInfo, Topology};
use crate::store::redis::decode;
use crate::store::redis::decode::text;
use crate::store::redis::dialect::words;
use crate::store::redis::line::ask_all;
use crate::store::wire::NodeName;

/// The node that a connection leads to, and the list of all nodes.
#[derive(Clone)]
pub(in crate::store::redis) struct Member {
    pub(in crate::store::redis) name: NodeName,
    nodes: Arc<NodeList>,
}

impl Member {
    pub(super) fn new(name: NodeName, nodes: Arc<NodeList>) -> Self {
        Self { name, nodes }
    }

    /// A node of a cluster, for tests.
    #[cfg(test)]
    pub(in crate::store::redis) fn of_cluster(name: &str) -> Self {
        Self::new(name.into(), Arc::new(NodeList::new(Topology::Cluster)))
    }

    /// Whether other nodes may have keys.
    pub(in crate::store::redis) fn has_neighbours(&self) -> bool {
        self.nodes.topology == Topology::Cluster
    }

    /// The slot of its channel, which is the same for all managers.
    pub(in crate::store::redis) fn channel_slot(&self) -> Option<u16> {
        self.nodes.find(&self.name, |node| channel_slot(&node.slots))
    }

    /// Some of its slots, far from each other; empty when the server is no cluster.
    pub(in crate::store::redis) fn some_slots(&self) -> Vec<u16> {
        if !self.has_neighbours() {
            return Vec::new();
        }
        let ends = |node: &Listed| {
            let mut ends: Vec<u16> =
                node.slots.iter().flat_map(|range| [*range.start(), *range.end()]).collect();
            ends.sort_unstable();
            let (first, last) = (*ends.first()?, *ends.last()?);
            let middle = *ends.get(ends.len() / 2)?;
            Some(vec![first, last, middle])
        };
        self.nodes.find(&self.name, ends).unwrap_or_default()
    }

    /// Completes when its channel gets another slot.
    pub(in crate::store::redis) async fn channel_slot_moved(&self) {
        let mut changes = self.nodes.changes();
        let before = self.channel_slot();
        while self.channel_slot() == before {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Checks that the server is the node that the list means: an address may belong to another
    /// node by now.
    pub(in crate::store::redis) async fn check(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), Fault> {
        match self.nodes.topology {
            Topology::Cluster => {
                let answer = ask(connection, words(["CLUSTER", "MYID"])).await?;
                let id = self.nodes.find(&self.name, |node| node.id.clone());
                match (id, text(&answer)) {
                    (Some(id), Some(own)) if id != own => Err(self.is_another(&own)),
                    _ => Ok(()),
                }
            }
            Topology::Sentinel => {
                let answer = ask(connection, words(["ROLE"])).await?;
                match role(&answer) {
                    Some(role) if role != "master" => Err(self.is_no_primary(&role)),
                    _ => Ok(()),
                }
            }
            Topology::Memory | Topology::Single | Topology::Quorum => Ok(()),
        }
    }

    fn is_another(&self, id: &str) -> Fault {
        let what = format!(
            "the address {} belongs to another node by now, which calls itself {id}; the nodes are \
             asked again",
            self.name
        );
        Fault::new(FaultClass::Refused, what)
    }

    fn is_no_primary(&self, role: &str) -> Fault {
        let what = format!(
            "the sentinels named {} as the primary, and it says that it is a {role}; they are \
             asked again",
            self.name
        );
        Fault::new(FaultClass::Refused, what).of(BackendErrorKind::ReadOnly)
    }

    /// Stores the version of its server.
    pub(in crate::store::redis) fn set_version(&self, version: &str) {
        self.nodes.set_version(&self.name, version);
    }

    /// Another connection is being made. Until it works, the node is described as in trouble.
    pub(in crate::store::redis) fn begin_connect(&self) {
        if self.nodes.was_connected(&self.name) {
            let what = "the connection was lost, and another one is being made";
            self.nodes.set_trouble(&self.name, Some(what));
        }
    }

    pub(in crate::store::redis) fn end_connect(&self, fault: Option<&Fault>) {
        self.nodes.set_trouble(&self.name, fault.map(|fault| &*fault.what));
    }

    /// Adds all known nodes to a description.
    pub(in crate::store::redis) fn describe(&self, info: &mut ServerInfo) {
        self.nodes.describe(info);
    }

    /// Warnings for operators about this node and the others. What the user may not ask for is
    /// skipped.
    pub(in crate::store::redis) async fn warnings(
        &self,
        connection: &mut MultiplexedConnection,
        ttl: Duration,
    ) -> Result<Vec<String>, Fault> {
        let timeout = ask(connection, words(["CONFIG", "GET", "cluster-node-timeout"])).await?;
        if let Some(timeout) =
            field(&timeout, "cluster-node-timeout").filter(|_| self.has_neighbours())
            && let Ok(millis) = timeout.parse()
        {
            self.nodes.set_outage(cluster_outage(Duration::from_millis(millis)));
        }
        let short = self.nodes.outage().and_then(|outage| short_lease(ttl, outage));
        let asked = Moment::now();
        let time = ask(connection, words(["TIME"])).await?;
        let skew = clock(&time, asked).and_then(|own| {
            let (name, other) = self.nodes.set_clock(&self.name, own)?;
            skew(own.ahead, other.ahead, own.doubt + other.doubt, &name)
        });
        Ok(short.into_iter().chain(skew).collect())
    }
}

/// Warns where a node of a quorum votes as soon as it has started, and may have forgotten what it knew.
pub(in crate::store::redis) async fn forgets(
    votes_at_once: bool,
    connection: &mut MultiplexedConnection,
) -> Result<Option<String>, Fault> {
    if !votes_at_once {
        return Ok(None);
    }
    let answer = ask(connection, words(["CONFIG", "GET", "append*"])).await?;
    let is = |name, value| field(&answer, name).is_some_and(|it| it == value);
    let persists = is("appendonly", "yes") && is("appendfsync", "always");
    Ok((!persists).then(|| {
        "with a `rejoin` of zero this node votes as soon as it has started, and it does not report \
         that it persists every write: if it forgets a lock, it votes for a second holder; set \
         appendonly yes and appendfsync always, or a `rejoin` longer than every lease"
            .into()
    }))
}

/// Reads a node's clock from its answer to `TIME`.
fn clock(time: &Value, asked: Moment) -> Option<Clock> {
    let Value::Array(items) = time else { return None };
    let number = |at: usize| items.get(at).and_then(text)?.parse::<i128>().ok();
    let doubt = Moment::now().since(asked);
    let millis = number(0)? * 1_000 + number(1)? / 1_000;
    Some(Clock { ahead: millis - i128::from(asked.as_nanos() / 1_000_000), doubt })
}

async fn ask(connection: &mut MultiplexedConnection, cmd: Cmd) -> Result<Value, Fault> {
    // As part of a pipeline, what the server refuses is an answer like others.
    let mut answers = ask_all(connection, [cmd]).await.map_err(decode::unreachable)?;
    Ok(answers.pop().unwrap_or(Value::Nil))
}

/// The first word of the answer to `ROLE`.
pub(super) fn role(answer: &Value) -> Option<String> {
    match answer {
        Value::Array(items) => items.first().and_then(text),
        _ => None,
    }
}

/// The difference between two clocks that is worth a warning, since leases end by these clocks.
const SKEW: Duration = Duration::from_millis(100);

/// How long a fail-over takes in a cluster with this `cluster-node-timeout`, as measured, including
/// elections that don't succeed at once.
fn cluster_outage(node_timeout: Duration) -> Duration {
    node_timeout * 17 / 10 + Duration::from_secs(1)
}

/// The same with sentinels, which have to agree first, and to announce the new primary afterwards.
pub(super) fn sentinel_outage(down_after: Duration) -> Duration {
    down_after + Duration::from_secs(2)
}

/// The longest pause between two tries to connect, by which a renewal may come later than the fail-over ends.
const RECONNECT: Duration = Duration::from_secs(1);

/// Warns of a lease that may end in a fail-over. One that begins right before a renewal finds 0.62 of the
/// lease left, of which 1.7 is the inverse, rounded up. The advice is rounded up to whole seconds.
fn short_lease(ttl: Duration, outage: Duration) -> Option<String> {
    let least = (outage + RECONNECT) * 17 / 10;
    (ttl < least).then(|| {
        let least = least.as_millis().div_ceil(1_000);
        format!(
            "a ttl of {ttl:.1?} may be shorter than a failover, which takes up to {outage:.1?} and may begin \
             when a renewal is due: make it {least}s or more, or let the nodes detect failures sooner"
        )
    })
}

/// Warns when the clocks of two nodes differ. `own` and `other` are their offsets from ours;
/// `doubt` is how long the answers took.
fn skew(own: i128, other: i128, doubt: Duration, named: &str) -> Option<String> {
    let apart = Duration::from_millis(u64::try_from((own - other).abs()).unwrap_or(u64::MAX));
    (apart > SKEW + doubt).then(|| {
        format!(
            "its clock is {apart:.1?} apart from that of {named}: after a failover between the two, \
             leases end that much sooner or later; keep the clocks together"
        )
    })
}

/// Warns when there are fewer replicas than an acquisition has to reach.
pub(in crate::store::redis) fn few_replicas(linked: u32, wanted: u32) -> Option<String> {
    (linked < wanted).then(|| {
        format!(
            "this server has {linked} replicas and {wanted} must confirm each lock, so none can be \
             acquired"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_ends_in_a_fail_over_is_warned_of_with_the_figure() {
        let outage = cluster_outage(Duration::from_secs(15));
        assert_eq!(outage, Duration::from_millis(26_500));
        let said = short_lease(Duration::from_secs(30), outage).unwrap();
        assert!(said.contains("26.5s") && said.contains("make it 47s or more"), "{said}");
        assert_eq!(short_lease(Duration::from_secs(47), outage), None);
        assert_eq!(short_lease(Duration::from_millis(46_800), outage), None);
        let outage = sentinel_outage(Duration::from_millis(500));
        assert!(short_lease(Duration::from_secs(5), outage).is_some());
        assert_eq!(short_lease(Duration::from_secs(6), outage), None);
    }

    #[test]
    fn f11_clocks_that_are_apart_are_warned_of_beyond_what_the_answers_took() {
        let doubt = Duration::from_millis(20);
        assert_eq!(skew(1_000, 1_120, doubt, "b"), None);
        let said = skew(-20_000, 121, doubt, "b").unwrap();
        assert!(said.contains("20.1s") && said.contains('b'), "{said}");
    }

    #[test]
    fn f14_too_few_replicas_are_warned_of() {
        assert_eq!(few_replicas(2, 2), None);
        assert!(few_replicas(1, 2).unwrap().contains("has 1 replicas and 2"));
    }
}
