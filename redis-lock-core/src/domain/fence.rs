//! Fencing numbers: how many are reserved at once, and where a reservation begins.

/// How many fencing numbers a fenced acquisition reserves, so that local hand-overs need no server.
/// Numbers follow the server's clock in microseconds. A larger reservation could take more numbers
/// than microseconds pass during an acquisition, and would run ahead of the clock.
pub(crate) const FENCES: u32 = 32;

/// The first number of the reservation that ends with `last`.
pub(crate) fn first_fence(last: u64) -> u64 {
    (last + 1).saturating_sub(FENCES.into())
}

/// The last number of the reservation that begins with `first`.
pub(crate) fn last_fence(first: u64) -> u64 {
    first.saturating_add(u64::from(FENCES) - 1)
}
