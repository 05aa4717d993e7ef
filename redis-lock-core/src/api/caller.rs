//! Who waits for a lock.

/// What waits: a task, while others go on, or the whole thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    Task,
    Thread,
}
