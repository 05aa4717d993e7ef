//! Fencing numbers: how many are reserved at once, which there are, and how they are read.

use std::ops::Range;

/// How many fencing numbers a fenced acquisition reserves, so that local hand-overs need no server.
/// Numbers follow the server's clock in microseconds. A larger reservation could take more numbers
/// than microseconds pass during an acquisition, and would run ahead of the clock.
pub(crate) const FENCES: u32 = 32;

/// From here on a double, which scripts count with, skips numbers, so two holders would be given the
/// same one.
pub(crate) const LARGEST: u64 = 1 << 53;

/// The text of a number; `None` where it is none that this library gives.
pub(crate) fn read(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number <= LARGEST || planted!(FenceUnbounded))
}

/// The numbers of the reservation that ends with `last`.
pub(crate) fn reserved(last: u64) -> Range<u64> {
    let end = last.saturating_add(1);
    end.saturating_sub(FENCES.into())..end
}

/// The last number of the reservation that begins with `first`.
pub(crate) fn last_fence(first: u64) -> u64 {
    first.saturating_add(u64::from(FENCES) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_up_to_the_largest_and_reserved_without_overflow() {
        assert_eq!(read("9007199254740992"), Some(LARGEST));
        for odd in ["9007199254740993", "18446744073709551616", "1e3", "-1", "", "inf", "7\0"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
        assert_eq!(reserved(40), 9..41);
        assert_eq!(reserved(3), 0..4);
        assert_eq!(reserved(u64::MAX).end, u64::MAX);
    }
}
