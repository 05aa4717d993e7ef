//! All locks that this process has to do with, behind short locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::LockError;
use crate::demand::Demand;
use crate::hold::Hold;
use crate::slot::Slot;

/// How a waiter is told.
pub(crate) type Handle = oneshot::Sender<Result<Arc<Hold>, LockError>>;

/// Names a slot: the key of a mutex; key and token for locks that several hold at once.
pub(crate) type SlotId = Arc<str>;

pub(crate) type Slots = HashMap<SlotId, Slot<Handle>>;

/// More shards than threads that are likely to meet, fewer than would cost memory.
const SHARDS: usize = 64;

/// The slots, spread over shards so that callers on different keys don't meet.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[Mutex<Slots>; SHARDS]>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { shards: Box::new(std::array::from_fn(|_| Mutex::default())) }
    }

    /// The shard of a slot, locked. Nothing slow may be done while it is.
    pub(crate) fn shard(&self, id: &str) -> MutexGuard<'_, Slots> {
        // Who chooses keys so that they meet here gains nothing but a little waiting, so a hash
        // without a secret will do.
        let mixed = id.bytes().fold(0_u32, |mixed, byte| {
            (mixed ^ u32::from(byte)).wrapping_mul(0x0100_0193).rotate_left(5)
        });
        self.shards[mixed as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all slots.
    pub(crate) fn ids(&self) -> Vec<SlotId> {
        let lock = |shard: &'_ Mutex<Slots>| {
            let slots = shard.lock().unwrap_or_else(PoisonError::into_inner);
            slots.keys().cloned().collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(lock).collect()
    }
}

/// The slot that a demand belongs to. `number` tells apart acquisitions that don't share one.
pub(crate) fn slot_id(demand: &Demand, number: u64) -> SlotId {
    if demand.kind.is_shared() {
        format!("{}\0{number}", demand.names.main()).into()
    } else {
        demand.names.main().into()
    }
}
