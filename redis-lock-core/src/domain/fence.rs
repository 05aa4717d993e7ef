//! Fencing numbers: how many are reserved at once, and where a reservation begins.

/// How many fencing numbers a fenced acquisition reserves, so that local hand-overs need no server.
/// Numbers follow the clock in microseconds; more than one acquisition takes anyway would run ahead.
pub(crate) const FENCES: u32 = 32;

/// The number that a reservation began with which ended with `last`.
pub(crate) fn first_fence(last: u64) -> u64 {
    (last + 1).saturating_sub(FENCES.into())
}
