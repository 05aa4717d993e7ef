//! Which primary several sentinels name together. No I/O happens here.

use std::sync::Arc;
use std::time::Duration;

use super::node_list::{Listed, NodeList};
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names::SLOTS;
use crate::domain::status::NodeRole;
use crate::store::directory::{Map, Primary};
use crate::store::redis::address::Address;

/// The answer of one sentinel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SentinelReport {
    pub(crate) epoch: u64,
    pub(crate) primary: Address,
    pub(crate) others: Vec<OtherSentinel>,
    /// How long the primary must be silent before the sentinel considers it down.
    pub(crate) down_after: Option<Duration>,
}

/// A sentinel as another one describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OtherSentinel {
    pub(crate) address: Address,
    /// It does not answer the other one.
    pub(crate) is_down: bool,
}

/// The primary that sentinels name, which may not know of it, or not be one any more.
pub(crate) struct NamedPrimary {
    pub(crate) address: Address,
    epoch: u64,
    /// Most sentinels were set up anew, and count their epochs from the beginning.
    is_anew: bool,
}

impl NamedPrimary {
    /// The result of these answers, from so many sentinels that were asked.
    pub(crate) fn of(
        reports: Vec<SentinelReport>,
        asked: usize,
        nodes: &NodeList,
    ) -> Result<Self, Fault> {
        let most = reports.len() * 2 > asked;
        let Some(latest) = latest(reports) else {
            return Err(Fault::new(FaultClass::Refused, "no sentinel answered"));
        };
        let is_anew = latest.epoch < nodes.epoch();
        if is_anew && !most {
            let what = "only sentinels that missed the last failover answer";
            return Err(Fault::new(FaultClass::Refused, what));
        }
        Ok(Self { address: latest.primary, epoch: latest.epoch, is_anew })
    }

    /// It was asked, and does not say that it is none.
    pub(crate) fn accept(self, nodes: &NodeList) -> Map {
        if self.is_anew {
            nodes.begin_anew();
        }
        // The one primary has all slots.
        let (name, slots) = (self.address.name(), vec![0..=SLOTS - 1]);
        let role = NodeRole::Primary;
        let listed = Listed { name: Arc::clone(&name), id: None, role, slots: slots.clone() };
        let epoch = nodes.set(self.epoch, vec![listed]);
        let primaries = vec![Primary { name, slots }];
        Map { epoch, is_healthy: true, is_disputed: false, primaries }
    }
}

/// The newest of several reports: the highest epoch, and of equal epochs what most sentinels say.
pub(super) fn latest(reports: Vec<SentinelReport>) -> Option<SentinelReport> {
    let votes =
        |one: &SentinelReport| reports.iter().filter(|other| other.primary == one.primary).count();
    let rank = |one: &&SentinelReport| (one.epoch, votes(one));
    reports.iter().max_by_key(rank).cloned()
}
