//! Which option a call has for a second call.

use std::fmt;

/// The option of a call that says what becomes of a second call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SecondCall {
    /// None: a second call waits its turn.
    Waits,
    /// [`queue`](crate::LockRequest::queue) with this number.
    Queue(usize),
    /// [`newest`](crate::LockRequest::newest).
    Newest,
    /// [`share`](crate::LockRequest::share).
    Share,
}

impl SecondCall {
    /// A call has one of them at most.
    pub(crate) fn of(queue: Option<usize>, newest: bool, share: bool) -> Self {
        match queue {
            Some(most) => Self::Queue(most),
            None if newest => Self::Newest,
            None if share => Self::Share,
            None => Self::Waits,
        }
    }
}

impl fmt::Display for SecondCall {
    /// As the attribute says it; nothing for [`Waits`](Self::Waits).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => Ok(()),
            Self::Queue(most) => write!(f, "queue = {most}"),
            Self::Newest => f.write_str("newest"),
            Self::Share => f.write_str("share"),
        }
    }
}
