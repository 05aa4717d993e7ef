//! In which slot of a node the channel lies on which a manager listens there.

use std::ops::RangeInclusive;

/// Odd, so that no two slots get the same number.
const SCATTER: u16 = 40_503;

/// Without it, slot 0 would be the first in the order, and slot 0 is often the first to be moved.
const START: u16 = 32_768;

/// The slot of a node's channel: the first of its slots in an order that is the same everywhere, and
/// in which neighbours are far apart.
///
/// A message to a channel whose slot moves may be lost, so the slot should seldom change. The lowest
/// slot would not do: it changes whenever the node gets a lower one, and when nodes give slots away, the
/// lowest ones go first.
pub(super) fn channel_slot(slots: &[RangeInclusive<u16>]) -> Option<u16> {
    slots
        .iter()
        .cloned()
        .flatten()
        .min_by_key(|slot| slot.wrapping_mul(SCATTER).wrapping_add(START))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_when_other_slots_come_and_go() {
        let own = [5_461..=10_922];
        let slot = channel_slot(&own).unwrap();
        let parts = |moved: u16| [5_461..=moved - 1, moved + 1..=10_922];
        for moved in (5_462..10_922).filter(|moved| *moved != slot) {
            assert_eq!(channel_slot(&parts(moved)), Some(slot), "{moved} has gone");
        }
        let changes =
            (0..5_461).filter(|come| channel_slot(&[*come..=*come, 5_461..=10_922]) != Some(slot));
        assert!(changes.count() <= 2, "few come before all others");
        assert_eq!(channel_slot(&[6_000..=10_922]), Some(slot), "the lowest have gone");
    }

    #[test]
    fn it_is_one_of_the_slots_and_none_without_any() {
        assert_eq!(channel_slot(&[]), None);
        assert_eq!(channel_slot(&[7..=7]), Some(7));
        let slot = channel_slot(&[10..=19, 30..=39]).unwrap();
        assert!((10..=19).contains(&slot) || (30..=39).contains(&slot), "{slot}");
    }
}
