//! Which machine a caller or an answer means.

use std::sync::Arc;

use crate::domain::demand::Demand;

/// Identifies a machine: by the key for a mutex, by key and number for locks that several can hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LockId {
    pub(crate) main: Arc<str>,
    /// 0 for a mutex.
    pub(super) number: u64,
}

impl LockId {
    /// The machine of a demand. `number` distinguishes acquisitions that don't share a machine.
    pub(crate) fn of(demand: &Demand, number: impl FnOnce() -> u64) -> Self {
        // An adoption must not wait behind those who wait for the end of the same hold, and `queue`
        // and `newest` are about calls.
        let is_alone = demand.adopts.is_some() || demand.terms.is_alone();
        let has_own_machine = !demand.kind.is_pooled() || is_alone;
        let number = match (has_own_machine, demand.terms.share) {
            (true, _) => number(),
            // Their place in the server's line tells what they get, so others have no part in it.
            (false, true) => u64::MAX,
            (false, false) => 0,
        };
        Self { main: demand.names.shared_main(), number }
    }

    /// Whether it is a separate machine, whose lock may have keys of several slots.
    pub(crate) fn has_own_machine(&self) -> bool {
        self.number != 0
    }

    pub(crate) fn mutex(main: &str) -> Self {
        Self { main: main.into(), number: 0 }
    }
}
