//! Which sentinels there are, besides those that the user named. No I/O happens here.

use std::collections::{BTreeMap, BTreeSet};

use super::named::SentinelReport;
use crate::store::redis::address::Address;

/// The most sentinels that are learned. A group has three or five.
const MOST: usize = 24;

/// Sentinels that the latest reports name, or that have given one of these.
#[derive(Default)]
pub(super) struct KnownSentinels {
    to_ask: BTreeSet<Address>,
    /// Those that the others find down, and that have not answered us either. A sentinel goes on
    /// naming others that have gone, until an operator resets it. They are part of the group, but
    /// are not asked.
    gone: BTreeSet<Address>,
}

impl KnownSentinels {
    pub(super) fn to_ask(&self) -> impl Iterator<Item = &Address> {
        self.to_ask.iter()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Address> {
        self.to_ask.iter().chain(&self.gone)
    }

    /// Takes the latest reports, each from the sentinel at its address, of those that were asked.
    /// Returns whether others are to be asked now.
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
    use super::super::named::OtherSentinel;
    use super::*;

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

    #[test]
    fn one_that_names_thousands_does_not_crowd_out_those_that_others_name() {
        let mut look = Look::new();
        let many: Vec<u16> = (1_000..4_000).chain([5_000]).collect();
        let (ports, all) = look.learn(&[report(1, &many, &[]), report(2, &[1, 5_000], &[])]);
        assert!(all <= MOST && ports.contains(&5_000), "{ports:?}");
    }
}
