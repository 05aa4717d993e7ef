//! The nodes of the arbiter, and which of them has which lock.
//!
//! Each node has its path, so a slow or dead node delays only the locks that it stores. With
//! several nodes, a map assigns slots to nodes. The engine reads the map again whenever a node
//! contradicts it. A place that has left the map is closed: commands that were sent there get an
//! unknown outcome, and queued commands follow the new map.

mod routing;
mod several;
#[cfg(test)]
mod tests;

pub(crate) use several::Several;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::path::Path;
use crate::domain::clock::Moment;
use crate::domain::names;
use crate::store::Connector;
use crate::store::wire::{Directory, NodeName};

/// Identifies a place of one engine. No number is used twice.
pub(crate) type PlaceId = u64;

/// The place where entries without a node wait for a map.
pub(crate) const UNROUTED: PlaceId = 0;

/// The first place that leads to a node.
pub(crate) const FIRST: PlaceId = 1;

/// One node, and the path to it.
pub(crate) struct Place {
    pub(crate) id: PlaceId,
    /// `None` when there is only one.
    pub(crate) name: Option<NodeName>,
    pub(crate) path: Path,
    /// `None` for the unrouted place, whose connection is a read of the map.
    pub(crate) connector: Option<Arc<dyn Connector>>,
    /// Whether grants are announced by messages at present.
    pub(crate) hints_enabled: AtomicBool,
    /// When it has last answered a question of a machine.
    answered: AtomicU64,
}

impl Place {
    pub(super) fn new(
        id: PlaceId,
        name: Option<NodeName>,
        path: Path,
        connector: Option<Arc<dyn Connector>>,
    ) -> Self {
        let (hints_enabled, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { id, name, path, connector, hints_enabled, answered }
    }

    pub(super) fn note_answer(&self, now: Moment) {
        self.answered.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn answered(&self) -> Moment {
        Moment::from_nanos(self.answered.load(Ordering::Relaxed))
    }

    pub(crate) fn is_unrouted(&self) -> bool {
        self.id == UNROUTED
    }
}

/// All nodes of one arbiter.
pub(crate) enum Places {
    One(Arc<Place>),
    Several(Box<Several>),
}

impl Places {
    /// One server.
    pub(crate) fn one(connector: Arc<dyn Connector>, time_limit: Duration, spread: u8) -> Self {
        let path = Path::new(time_limit, spread);
        if let Some(made) = connector.connect_at_once() {
            path.traffic().connect_at_once(made, Moment::now());
        }
        let place = Place::new(FIRST, None, path, Some(connector));
        Self::One(Arc::new(place))
    }

    /// Several nodes, or a node that another may replace.
    pub(crate) fn several(directory: Arc<dyn Directory>, time_limit: Duration, spread: u8) -> Self {
        Self::Several(Box::new(Several::new(directory, time_limit, spread)))
    }

    /// Set for several nodes, or for a node that another may replace.
    pub(crate) fn as_several(&self) -> Option<&Several> {
        match self {
            Self::One(_) => None,
            Self::Several(several) => Some(several),
        }
    }

    /// The place that has this key.
    pub(crate) fn of(&self, main: &str) -> Arc<Place> {
        match self {
            Self::One(place) => Arc::clone(place),
            Self::Several(several) => several.of_slot(names::slot(main)),
        }
    }

    /// The only place, if the configuration names a single server.
    pub(crate) fn only(&self) -> Option<&Arc<Place>> {
        match self {
            Self::One(place) => Some(place),
            Self::Several(_) => None,
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Place>> {
        match self {
            Self::One(place) => vec![Arc::clone(place)],
            Self::Several(several) => {
                let routing = several.routing();
                let unrouted = std::iter::once(&several.unrouted);
                unrouted.chain(routing.places()).cloned().collect()
            }
        }
    }

    /// The places of nodes with keys, ordered by name.
    pub(crate) fn primaries(&self) -> Vec<Arc<Place>> {
        match self {
            Self::One(place) => vec![Arc::clone(place)],
            Self::Several(several) => {
                let mut places: Vec<_> = several.routing().places().cloned().collect();
                places.sort_by(|one, other| one.name.cmp(&other.name));
                places
            }
        }
    }

    pub(crate) fn get(&self, id: PlaceId) -> Option<Arc<Place>> {
        self.all().into_iter().find(|place| place.id == id)
    }

    /// Grows with each change of the routing.
    pub(crate) fn version(&self) -> u64 {
        self.as_several().map_or(0, |several| several.routing().version())
    }
}
