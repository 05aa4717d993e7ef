//! The place of a token in the server's queue.

use crate::store::Blocker;

/// A place, by the number of places that the token has had. One that was taken out of the queue, and
/// queues again, is behind those that it was ahead of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueuePlace(u32);

/// What the answers have said of a token's place.
#[derive(Debug, Default)]
pub(super) struct QueuePlaces {
    had: u32,
    present: Option<QueuePlace>,
}

impl QueuePlaces {
    pub(super) fn note(&mut self, blocker: &Blocker) {
        let came_last = blocker.came_last && !planted!(PlaceNotNew);
        if blocker.queued && (came_last || self.present.is_none()) {
            self.had += 1;
        }
        self.present = blocker.queued.then_some(QueuePlace(self.had));
    }

    pub(super) fn present(&self) -> Option<QueuePlace> {
        self.present
    }
}
