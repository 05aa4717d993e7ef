//! How a key is used, which says what its next leases are to do.

/// What a lease has shown of how its key is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyUse {
    /// Another process gets the lock. The lease was taken again this often without a command, and
    /// nobody was inside when it was asked for, or somebody was.
    GivenAway { taken_again: u32, was_idle: bool },
    /// Another process has the lock, with a lease that may be idle.
    MayBeIdleElsewhere,
    /// The lock was free, although another process had it a moment ago.
    WasFree,
}

/// What the leases of a key have shown until now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHabits {
    /// Whether its leases may linger.
    pub(crate) lingers: bool,
    /// Whether letting them linger has saved far more than it cost. Then also a lease may linger
    /// that had to be waited for.
    pub(crate) is_ours_mostly: bool,
    /// Whether another process had the lock a moment ago with a lease that may be idle, so that
    /// trying `SET NX` first would waste a round trip.
    pub(crate) may_be_idle_elsewhere: bool,
}

impl Default for KeyHabits {
    /// Of a key of which nothing is known.
    fn default() -> Self {
        Self { lingers: true, is_ours_mostly: false, may_be_idle_elsewhere: false }
    }
}
