//! Which machine a caller or an answer means, and the machines of several keys by their other keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::domain::demand::Demand;
use crate::lock::Machine;
use crate::sync::NonPoisonMutex;

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

/// The machines of several keys, by each of their keys but the first, by which the table has them.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    keys: NonPoisonMutex<BTreeMap<Arc<str>, MachinesBeside>>,
    /// Of how many keys there are some.
    count: AtomicUsize,
}

/// The demand by whose other keys a machine is found, and what it counts as there.
pub(super) type NotedBeside = Option<(Arc<Demand>, usize)>;

#[derive(Debug, Default)]
struct MachinesBeside {
    ids: BTreeSet<LockId>,
    /// How many of their calls have to wait for certain.
    refused: usize,
}

impl Beside {
    /// How many calls have to wait for several keys of which this is one, and not the first.
    pub(super) fn refused(&self, main: &str) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.keys.lock().get(main).map_or(0, |beside| beside.refused)
    }

    /// The machines of several keys of which this is one, and not the first.
    pub(super) fn ids(&self, main: &str) -> Vec<LockId> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.keys.lock().get(main).map_or(Vec::new(), |it| it.ids.iter().cloned().collect())
    }

    /// A step has changed a separate machine, of which this was noted.
    pub(super) fn correct<W>(&self, id: &LockId, machine: &Machine<W>, noted: &mut NotedBeside) {
        let demand = machine.demand().filter(|demand| demand.names.all().nth(1).is_some());
        let refused = machine.crowd().refused;
        let (before, was_refused) = match &*noted {
            Some((demand, refused)) => (Some(demand), *refused),
            None => (None, 0),
        };
        if before.is_some() == demand.is_some() && was_refused == refused {
            return;
        }
        let Some(either) = demand.or(before) else { return };
        let mut keys = self.keys.lock();
        for names in either.names.all().skip(1) {
            let beside = keys.entry(names.shared_main()).or_default();
            beside.refused = beside.refused + refused - was_refused;
            match demand {
                Some(_) => drop(beside.ids.insert(id.clone())),
                None => drop(beside.ids.remove(id)),
            }
            if beside.ids.is_empty() {
                keys.remove(names.main());
            }
        }
        self.count.store(keys.len(), Ordering::Relaxed);
        drop(keys);
        *noted = demand.map(|demand| (Arc::clone(demand), refused));
    }
}
