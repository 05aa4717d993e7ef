//! What a lock is called in numbers and events, where its key would be one of millions.

use crate::domain::kind::Kind;

/// The name of a sort of lock, and of the annotated function that takes it. Empty where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Title {
    /// The template of its keys, or the name that the request was given.
    pub(crate) lock: &'static str,
    pub(crate) function: &'static str,
}

/// What the numbers of a request are told apart by.
pub(crate) type LockSort = (Kind, Title);

impl Title {
    /// The name as a field of an event, which is left out where there is none.
    pub(crate) fn shown(&self) -> Option<&'static str> {
        Some(self.lock).filter(|lock| !lock.is_empty())
    }
}
