//! Warnings for operators of several nodes.

use std::time::Duration;

/// The difference between two clocks that is worth a warning, since leases end by these clocks.
const SKEW: Duration = Duration::from_millis(100);

/// How long a fail-over takes in a cluster with this `cluster-node-timeout`, as measured, including
/// elections that don't succeed at once.
pub(super) fn cluster_outage(node_timeout: Duration) -> Duration {
    node_timeout * 17 / 10 + Duration::from_secs(1)
}

/// The same with sentinels, which have to agree first, and to announce the new primary afterwards.
pub(super) fn sentinel_outage(down_after: Duration) -> Duration {
    down_after + Duration::from_secs(2)
}

/// Warns of a lease that is shorter than a fail-over, in which it can't be renewed.
pub(super) fn short_lease(ttl: Duration, outage: Duration) -> Option<String> {
    let least = outage * 3 / 2;
    (ttl < least).then(|| {
        format!(
            "a ttl of {ttl:.1?} is shorter than a fail-over may take ({outage:.1?}), so locks are \
             lost in one although nothing else is: make it {least:.1?} or more, or have the nodes \
             notice failures sooner"
        )
    })
}

/// Warns when the clocks of two nodes differ. `own` and `other` are their offsets from ours;
/// `doubt` is how long the answers took.
pub(super) fn skew(own: i128, other: i128, doubt: Duration, named: &str) -> Option<String> {
    let apart = Duration::from_millis(u64::try_from((own - other).abs()).unwrap_or(u64::MAX));
    (apart > SKEW + doubt).then(|| {
        format!(
            "its clock is {apart:.1?} apart from that of {named}: after a fail-over between the two \
             leases end that much sooner or later, so keep the clocks together"
        )
    })
}

/// Warns when there are fewer replicas than an acquisition has to reach.
pub(in crate::store::redis) fn few_replicas(linked: u32, wanted: u32) -> Option<String> {
    (linked < wanted).then(|| {
        format!(
            "this server has {linked} replicas and {wanted} must have each lock, so none can be \
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
        assert!(said.contains("26.5s") && said.contains("39.8s"), "{said}");
        assert_eq!(short_lease(Duration::from_secs(40), outage), None);
        let outage = sentinel_outage(Duration::from_millis(500));
        assert!(short_lease(Duration::from_secs(3), outage).is_some());
        assert_eq!(short_lease(Duration::from_secs(4), outage), None);
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
