//! The machines of one key.

use std::collections::BTreeMap;

use super::resident::Resident;
use super::waiting_line::{Spot, WaitingLine};

/// The machines of one key. They are in boxes, because the hash table has twice the needed capacity
/// and moves its entries when it grows.
#[derive(Debug, Default)]
pub(super) struct KeyEntry {
    /// The one that the tasks of the process share.
    pooled: Option<Box<Resident>>,
    /// Those of single acquisitions. Most keys have none, so that they are in a box together.
    unpooled: Option<Box<Unpooled>>,
}

#[derive(Debug, Default)]
struct Unpooled {
    by_number: BTreeMap<u64, Box<Resident>>,
    /// Those of them that are in the server's queue.
    line: WaitingLine,
}

impl KeyEntry {
    /// The machine with this number; 0 for the one that is shared.
    pub(super) fn get(&self, number: u64) -> Option<&Resident> {
        match number {
            0 => self.pooled.as_deref(),
            _ => self.unpooled.as_ref()?.by_number.get(&number).map(AsRef::as_ref),
        }
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Resident> {
        match number {
            0 => self.pooled.as_deref_mut(),
            _ => self.unpooled.as_mut()?.by_number.get_mut(&number).map(AsMut::as_mut),
        }
    }

    pub(super) fn get_or_make(
        &mut self,
        number: u64,
        make: impl FnOnce() -> Box<Resident>,
    ) -> &mut Resident {
        match number {
            0 => self.pooled.get_or_insert_with(make),
            _ => self.unpooled.get_or_insert_default().by_number.entry(number).or_insert_with(make),
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Box<Resident>> {
        match number {
            0 => self.pooled.take(),
            _ => self.unpooled.as_mut()?.by_number.remove(&number),
        }
    }

    /// A machine came into the server's queue, left it, or came into it again. Returns the machine that
    /// stands at the front since then.
    pub(super) fn change_line(&mut self, number: u64) -> Option<u64> {
        let Unpooled { by_number, line } = self.unpooled.as_deref_mut()?;
        let resident = by_number.get_mut(&number)?;
        resident.place = resident.machine.place();
        let left = resident.spot.take();
        let forward = left.and_then(|spot| line.leave(number, spot));
        resident.spot = resident.place.map(|_| line.join(number));
        by_number.get_mut(&forward?)?.spot = Some(Spot::Front);
        forward
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pooled.is_none()
            && self.unpooled.as_ref().is_none_or(|unpooled| unpooled.by_number.is_empty())
    }

    /// The machines with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Resident)> {
        let unpooled = self.unpooled.iter().flat_map(|unpooled| unpooled.by_number.iter());
        let pooled = self.pooled.iter().map(|resident| (0, resident));
        pooled
            .chain(unpooled.map(|(number, resident)| (*number, resident)))
            .map(|(number, resident)| (number, &**resident))
    }
}
