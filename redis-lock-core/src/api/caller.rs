//! Who waits for a lock.

/// Who waits: a task, which lets others go on meanwhile, or the whole thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    Task,
    Thread,
}
