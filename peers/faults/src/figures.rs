use std::fmt::{self, Display};
use std::time::Duration;

/// What one round of one cell gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) holds: u64,
    /// Holds of which the library said that they were lost.
    pub(crate) told_lost: u64,
    /// Holds during which another one began.
    pub(crate) overlaps: u64,
    /// Those of them where no caller of the two heard that anything was wrong.
    pub(crate) untold: u64,
    /// Whether the holds that their callers were told to have had are those of some mutex.
    pub(crate) linearizable: bool,
    pub(crate) lost_plain: u64,
    /// `None` where a library has no fencing numbers.
    pub(crate) lost_fenced: Option<u64>,
    /// Calls that never returned.
    pub(crate) hung: u64,
    /// Processes that the library, or its driver, ended.
    pub(crate) crashed: u64,
    /// Calls that ended with an error of the server or the network.
    pub(crate) failed: u64,
    pub(crate) busy: u64,
    /// Keys that stayed after each lease was over, and for how many milliseconds more.
    pub(crate) left: Vec<(String, i64)>,
    /// The longest time from a call to its hold.
    pub(crate) longest_wait: Option<Duration>,
    /// From each fault, or each release where there is none, to the next holder.
    pub(crate) next: Vec<Duration>,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} holds, {} told lost, {} overlaps, {} untold, linearizable {}, lost {}/{:?}, hung {}, crashed {}, \
             failed {}, busy {}, left {:?}, longest wait {:?}, next {:?}",
            self.holds,
            self.told_lost,
            self.overlaps,
            self.untold,
            self.linearizable,
            self.lost_plain,
            self.lost_fenced,
            self.hung,
            self.crashed,
            self.failed,
            self.busy,
            self.left,
            self.longest_wait,
            self.next.iter().max()
        )
    }
}
