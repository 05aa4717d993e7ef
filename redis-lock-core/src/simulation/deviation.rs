//! What can happen to one message otherwise than usual, for walks over all small histories.

use super::clock::MILLI;

/// Longer than the leases and the time limits of commands in those histories.
pub(super) const LATE: u64 = 1_400 * MILLI;

/// How much later the server executes what had reached it when a connection ended: the client has sent
/// it again by then.
pub(super) const AGAIN: u64 = 300 * MILLI;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageSort {
    Command,
    Answer,
    /// The second round trip of a transaction.
    Exec,
}

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deviation {
    Late,
    /// It is lost, and so is its connection.
    Lost,
    /// Its connection ends, and it is executed all the same, when it has been sent again.
    Twice,
    /// The process ends that sent it, or that it was meant for.
    Dies,
}

impl MessageSort {
    pub(super) fn deviations(self) -> &'static [Deviation] {
        match self {
            Self::Command | Self::Exec => {
                &[Deviation::Late, Deviation::Lost, Deviation::Twice, Deviation::Dies]
            }
            Self::Answer => &[Deviation::Late, Deviation::Lost, Deviation::Dies],
        }
    }
}
