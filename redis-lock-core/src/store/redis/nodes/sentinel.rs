//! Sentinels: they say which server is the primary, and replace it when it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, Value};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::asker::{Asker, NodeAccess, Target, address_of, gather, worst};
use super::cluster_view::field;
use super::member::{Member, role, sentinel_outage};
use super::node_list::{NamedPrimary, NodeList, OtherSentinel, SentinelReport};
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::status::Topology;
use crate::store::redis::address::Address;
use crate::store::redis::decode::text;
use crate::store::redis::dialect::words;
use crate::store::redis::subscription::Subscription;
use crate::store::redis::{RedisConnector, Terms, decode};
use crate::store::wire::{Directory, Map, NodeName};
use crate::store::{BoxFuture, Connector};
use crate::sync::NonPoisonMutex;

/// How long a sentinel may take to answer. A dead one must not delay the others' answers.
const LIMIT: Duration = Duration::from_millis(500);

/// How often the sentinels are asked, since their events may be missed.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Where sentinels announce another primary.
const CHANNEL: &str = "+switch-master";

/// The pause before subscribing at a sentinel again.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks the sentinels of one primary.
pub(crate) struct SentinelDirectory {
    /// The primary's name in the sentinels' configuration.
    name: String,
    seeds: Vec<redis::Client>,
    known: NonPoisonMutex<KnownSentinels>,
    others_known: Notify,
    asker: Asker,
    server_asker: Asker,
    nodes: Arc<NodeList>,
}

impl SentinelDirectory {
    /// `seeds` are sentinels. `sentinels` says how to connect to them, `servers` how to connect to
    /// the primary.
    pub(crate) fn new(
        name: String,
        seeds: Vec<redis::Client>,
        sentinels: (NodeAccess, Terms),
        servers: (NodeAccess, Terms),
    ) -> Self {
        Self {
            name,
            seeds,
            known: NonPoisonMutex::default(),
            others_known: Notify::new(),
            asker: Asker::new(sentinels.0, sentinels.1),
            server_asker: Asker::new(servers.0, servers.1),
            nodes: Arc::new(NodeList::new(Topology::Sentinel)),
        }
    }
}

impl Directory for SentinelDirectory {
    fn look(&self, _: Vec<NodeName>) -> BoxFuture<'_, Result<Map, Fault>> {
        Box::pin(self.read())
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.switched())
    }

    fn look_interval(&self) -> Duration {
        self.asker.terms.jittered(LOOK_INTERVAL)
    }

    fn connector(&self, node: &NodeName) -> Arc<dyn Connector> {
        let member = Member::new(Arc::clone(node), Arc::clone(&self.nodes));
        Arc::new(RedisConnector::of_node(
            self.server_asker.access.clone(),
            member,
            &self.server_asker.terms,
        ))
    }
}

impl SentinelDirectory {
    async fn read(&self) -> Result<Map, Fault> {
        let asked = self.targets();
        let before = self.group_size();
        let answers = self.ask_all(&asked).await?;
        self.learn(&asked, &answers);
        let reports: Vec<_> = answers.into_iter().map(|(_, report)| report).collect();
        if let Some(down_after) = reports.iter().filter_map(|report| report.down_after).max() {
            self.nodes.set_outage(sentinel_outage(down_after));
        }
        // Sentinels that are no longer named count once more, so that one look in which only
        // newcomers answer does not make these the majority.
        let size = before.max(self.group_size());
        let named = NamedPrimary::of(reports, size, &self.nodes)?;
        self.check_role(&named.address).await?;
        Ok(named.accept(&self.nodes))
    }

    async fn ask_all(
        &self,
        targets: &[Target],
    ) -> Result<Vec<(Option<Address>, SentinelReport)>, Fault> {
        let asking = targets.iter().map(|target| self.ask(target));
        let are_most = |count| count * 2 > targets.len();
        let (answers, faults) = gather(asking, self.asker.terms.time_limit, are_most).await;
        if answers.is_empty() { Err(worst(faults, "no sentinel answered")) } else { Ok(answers) }
    }

    async fn ask(&self, target: &Target) -> Result<(Option<Address>, SentinelReport), Fault> {
        let answers = self.asker.ask(target, &question(&self.name), LIMIT).await?;
        let address = target.address();
        let asked = address.as_ref().map(|address| address.host.as_str()).unwrap_or_default();
        let report = read_report(&answers, asked, &self.name)?;
        Ok((address, report))
    }

    /// The sentinels to ask and to listen to.
    fn targets(&self) -> Vec<Target> {
        let seeds = self.seeds.iter().cloned().map(Box::new).map(Target::Seed);
        let known: Vec<_> = self.known.lock().to_ask().cloned().map(Target::Node).collect();
        let mut seen = BTreeSet::new();
        let all = seeds.chain(known);
        all.filter(|target| target.address().is_none_or(|address| seen.insert(address))).collect()
    }

    /// How many sentinels there are, of which more than half must agree.
    fn group_size(&self) -> usize {
        let known = self.known.lock();
        let seeds: BTreeSet<_> = self.seeds.iter().filter_map(address_of).collect();
        let others = known.all().filter(|address| !seeds.contains(address)).count();
        seeds.len() + others
    }

    fn learn(&self, asked: &[Target], answers: &[(Option<Address>, SentinelReport)]) {
        let asked = asked.iter().filter_map(Target::address).collect();
        let has_changed = self.known.lock().learn(&asked, answers);
        if has_changed {
            let targets: BTreeSet<_> = self.targets().iter().filter_map(Target::address).collect();
            self.asker.keep(|address| targets.contains(address));
            self.others_known.notify_one();
        }
    }

    /// Checks that the server considers itself a primary: sentinels name a new primary before it is
    /// promoted, and an old one until they notice.
    async fn check_role(&self, primary: &Address) -> Result<(), Fault> {
        let target = Target::Node(primary.clone());
        let answers = self.server_asker.ask(&target, &[words(["ROLE"])], LIMIT).await?;
        self.server_asker.keep(|address| address == primary);
        match answers.first().and_then(role) {
            Some(role) if role != "master" => {
                let what = format!("the sentinels name {primary}, which says that it is a {role}");
                Err(Fault::new(FaultClass::Refused, what))
            }
            // A user who may not ask for the role finds out by the commands that are refused.
            _ => Ok(()),
        }
    }

    /// Completes when a sentinel announces another primary.
    async fn switched(&self) {
        loop {
            let targets = self.targets().into_iter();
            let mut listening: FuturesUnordered<_> =
                targets.map(|target| self.heard(target)).collect();
            tokio::select! {
                Some(()) = listening.next() => return,
                () = self.others_known.notified() => {}
            }
        }
    }

    /// Completes when this sentinel announces another primary.
    async fn heard(&self, target: Target) {
        let take = |payload: &str| match payload.split(' ').next() == Some(&self.name) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        loop {
            if let Ok(client) = target.client(&self.asker.access).await
                && let Ok(subscription) =
                    Subscription::to(&client, CHANNEL, &self.asker.terms, LIMIT).await
                && subscription.relay(LIMIT, take).await.is_break()
            {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

/// The commands that a sentinel is asked.
fn question(name: &str) -> [Cmd; 3] {
    ["GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS"].map(|what| words(["SENTINEL", what, name]))
}

/// Reads the answers of the sentinel at the host `asked`.
pub(super) fn read_report(
    answers: &[Value],
    asked: &str,
    name: &str,
) -> Result<SentinelReport, Fault> {
    let primary = match answers.first() {
        Some(Value::Array(items)) => items.first().zip(items.get(1)),
        Some(Value::ServerError(error)) => return Err(decode::refusal(error)),
        _ => None,
    };
    let primary = primary.and_then(|(host, port)| {
        let (host, port) = (text(host)?, text(port)?.parse().ok()?);
        Some(Address::new(host, port).seen_from(asked))
    });
    let Some(primary) = primary else {
        let what = format!("this sentinel watches no primary that is called `{name}`");
        return Err(Fault::new(FaultClass::Permanent, what));
    };
    let number = |name| answers.get(1).and_then(|fields| field(fields, name)?.parse::<u64>().ok());
    let others = match answers.get(2) {
        Some(Value::Array(others)) => others.iter().filter_map(other).collect(),
        _ => Vec::new(),
    };
    let down_after = number("down-after-milliseconds").map(Duration::from_millis);
    Ok(SentinelReport { epoch: number("config-epoch").unwrap_or(0), primary, others, down_after })
}

fn other(fields: &Value) -> Option<OtherSentinel> {
    let address = Address::new(field(fields, "ip")?, field(fields, "port")?.parse().ok()?);
    let flags = field(fields, "flags").unwrap_or_default();
    Some(OtherSentinel { address, is_down: flags.split(',').any(|flag| flag == "s_down") })
}

/// The most sentinels that are learned. A group has three or five.
const MOST: usize = 24;

/// Sentinels that the latest reports name, or that have given one of these.
#[derive(Default)]
pub(super) struct KnownSentinels {
    to_ask: BTreeSet<Address>,
    /// Sentinels that the others find down, and that have not answered us either. A sentinel
    /// keeps naming others that have gone, until an operator resets it. They count as part of the
    /// group, but are not asked.
    gone: BTreeSet<Address>,
}

impl KnownSentinels {
    pub(super) fn to_ask(&self) -> impl Iterator<Item = &Address> {
        self.to_ask.iter()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Address> {
        self.to_ask.iter().chain(&self.gone)
    }

    /// Takes the latest reports, each from the sentinel at its address. Returns whether other
    /// sentinels must be asked now.
    pub(super) fn learn(
        &mut self,
        asked: &BTreeSet<Address>,
        answers: &[(Option<Address>, SentinelReport)],
    ) -> bool {
        let mut kept: Vec<_> = answers.iter().filter_map(|(address, _)| address.clone()).collect();
        kept.truncate(MOST);
        let answered: BTreeSet<_> = kept.iter().cloned().collect();
        let (mut to_ask, mut gone) = (answered.clone(), BTreeSet::new());
        for (address, is_down) in named(answers) {
            if answered.contains(&address) {
                continue;
            }
            if to_ask.len() + gone.len() >= MOST {
                break;
            }
            let was_tried = asked.contains(&address) || self.gone.contains(&address);
            let group = if is_down && was_tried { &mut gone } else { &mut to_ask };
            group.insert(address);
        }
        if planted!(SentinelsKept) {
            to_ask.extend(self.to_ask.iter().cloned());
        }
        let has_changed = to_ask != self.to_ask;
        (self.to_ask, self.gone) = (to_ask, gone);
        has_changed
    }
}

/// The sentinels that reports name, those that most reports name first, and whether all these find
/// them down.
fn named(answers: &[(Option<Address>, SentinelReport)]) -> Vec<(Address, bool)> {
    let mut named: BTreeMap<&Address, (usize, bool)> = BTreeMap::new();
    for other in answers.iter().flat_map(|(_, report)| &report.others) {
        let (votes, is_down) = named.entry(&other.address).or_insert((0, true));
        *votes += 1;
        *is_down &= other.is_down;
    }
    let mut named: Vec<_> = named.into_iter().collect();
    // The order of equals stays as it is.
    named.sort_by_key(|(_, (votes, _))| std::cmp::Reverse(*votes));
    named.into_iter().map(|(address, (_, is_down))| (address.clone(), is_down)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::node_list::OtherSentinel;
    use super::*;
    use crate::domain::planted::{self, PlantedFault};

    fn address(port: u16) -> Address {
        Address::new("h", port)
    }

    /// The report of the sentinel at this port, about others that are up and down.
    fn report(of: u16, up: &[u16], down: &[u16]) -> (Option<Address>, SentinelReport) {
        let other = |port: &u16, is_down| OtherSentinel { address: address(*port), is_down };
        let others = up.iter().map(|port| other(port, false));
        let others = others.chain(down.iter().map(|port| other(port, true))).collect();
        let primary = Address::new("p", 1);
        (Some(address(of)), SentinelReport { epoch: 1, primary, others, down_after: None })
    }

    struct Look {
        known: KnownSentinels,
    }

    impl Look {
        fn new() -> Self {
            Self { known: KnownSentinels::default() }
        }

        /// Of the sentinels at 1 (the seed) and those that are known, these answer.
        fn learn(&mut self, answers: &[(Option<Address>, SentinelReport)]) -> (Vec<u16>, usize) {
            let asked = self.known.to_ask().cloned().chain([address(1)]).collect();
            self.known.learn(&asked, answers);
            let ports = self.known.to_ask().map(|address| address.port).collect();
            (ports, self.known.all().count())
        }
    }

    #[test]
    fn a_sentinel_that_no_report_names_any_more_is_forgotten() {
        let mut look = Look::new();
        assert_eq!(look.learn(&[report(1, &[2, 3], &[])]), (vec![1, 2, 3], 3));
        // It does not answer, and is named by others.
        let two = [report(1, &[2, 3], &[]), report(3, &[1, 2], &[])];
        assert_eq!(look.learn(&two), (vec![1, 2, 3], 3));
        let others = [report(1, &[3, 4], &[]), report(3, &[1, 4], &[])];
        assert_eq!(look.learn(&others), (vec![1, 3, 4], 3));
    }

    #[test]
    fn one_that_all_find_down_is_asked_once_and_counts_as_part_of_the_group() {
        let mut look = Look::new();
        assert_eq!(look.learn(&[report(1, &[2], &[3])]), (vec![1, 2, 3], 3));
        let after = [report(1, &[2], &[3]), report(2, &[1], &[3])];
        for _ in 0..3 {
            assert_eq!(look.learn(&after), (vec![1, 2], 3));
        }
        assert_eq!(look.learn(&[report(1, &[2], &[3]), report(2, &[1, 3], &[])]).0, [1, 2, 3]);
        // Those that only we can reach are asked on.
        let cut_off = [report(1, &[], &[2, 3]), report(2, &[3], &[]), report(3, &[2], &[])];
        assert_eq!(look.learn(&cut_off), (vec![1, 2, 3], 3));
    }

    /// How many sentinels are asked after one has named ten new ones in each of many reports.
    fn asked_in_the_end() -> usize {
        let mut look = Look::new();
        let ports = (0..100).map(|turn| (10 * turn + 2..10 * turn + 12).collect::<Vec<u16>>());
        ports.map(|ports| look.learn(&[report(1, &ports, &[])]).0.len()).last().unwrap()
    }

    #[test]
    fn what_was_named_long_ago_is_not_asked_for_ever() {
        assert!(asked_in_the_end() <= MOST);
        planted::plant(Some(PlantedFault::SentinelsKept));
        let asked = asked_in_the_end();
        planted::plant(None);
        assert!(asked > 900, "{asked}");
    }

    #[test]
    fn one_that_names_thousands_does_not_crowd_out_those_that_others_name() {
        let mut look = Look::new();
        let many: Vec<u16> = (1_000..4_000).chain([5_000]).collect();
        let (ports, all) = look.learn(&[report(1, &many, &[]), report(2, &[1, 5_000], &[])]);
        assert!(all <= MOST && ports.contains(&5_000), "{ports:?}");
    }
}
