//! What identifies the machine of a lock, and a place.

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
        // An adoption must not wait behind those who wait for the end of the same hold.
        let has_own_machine = !demand.kind.is_pooled() || demand.adopts.is_some();
        let number = if has_own_machine { number() } else { 0 };
        Self { main: demand.names.shared_main(), number }
    }

    /// Whether it is a machine of its own, whose lock may have keys of several slots.
    pub(crate) fn has_own_machine(&self) -> bool {
        self.number != 0
    }

    pub(crate) fn mutex(main: &str) -> Self {
        Self { main: main.into(), number: 0 }
    }
}

/// Identifies a place of one engine. No number is used twice.
pub(crate) type PlaceId = u64;
