//! Where a machine stands among those of its process that wait for the same lock.

/// Where a machine stands among those of its process that wait for the same lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    /// All tasks of the process share it, as with a mutex.
    Alone,
    /// Among the first.
    Front,
    /// Many others are let in before it.
    Behind,
}
