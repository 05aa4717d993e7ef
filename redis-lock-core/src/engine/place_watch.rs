//! Watches the socket of a place for the engine, as long as the engine reads there.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use super::path::Reader;
use super::places::Place;
use crate::domain::clock::Moment;
use crate::store::Readiness;

/// How often a socket is read that can't be watched.
const BLIND_PAUSE: Duration = Duration::from_millis(5);

/// The engine's registration of the socket of a place.
#[derive(Default)]
pub(super) struct PlaceWatch {
    /// The registration that says when the connection of this epoch can be read.
    readiness: Option<(u64, Box<dyn Readiness>)>,
    /// Whether that could not be registered, as in a process without free descriptors.
    is_blind: bool,
}

impl PlaceWatch {
    /// Watches the present connection if the engine reads there, and nothing otherwise.
    pub(super) fn follow(&mut self, place: &Place) {
        let (epoch, reader, watcher) = {
            let traffic = place.path.traffic();
            (traffic.epoch(), traffic.role.reader(), traffic.watcher())
        };
        let watched = epoch.filter(|_| reader == Reader::Engine);
        let has_watcher = watcher.is_some();
        if self.readiness.as_ref().map(|(epoch, _)| *epoch) != watched {
            self.readiness = None;
            if let (Some(epoch), Some((_, watcher))) = (watched, watcher) {
                self.readiness = watcher().ok().map(|readiness| (epoch, readiness));
            }
        }
        self.is_blind = watched.is_some() && has_watcher && self.readiness.is_none();
    }

    /// When the place has to be read although nothing says that something has arrived.
    pub(super) fn due(&self, now: Moment) -> Moment {
        if self.is_blind { now.after(BLIND_PAUSE) } else { Moment::NEVER }
    }

    /// Ready when something may have arrived, or when more can be sent. After an error it is registered
    /// again, or found to be closed.
    pub(super) fn poll(&self, place: &Place, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((_, readiness)) = &self.readiness else { return Poll::Pending };
        let sending = !place.path.traffic().is_sent();
        readiness.poll_ready(context, sending)
    }

    pub(super) fn forget(&mut self) {
        self.readiness = None;
    }
}
