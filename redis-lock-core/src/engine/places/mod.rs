//! The nodes of the arbiter, and which of them has which lock.
//!
//! Each node has a path of its own, so that a slow or dead node delays only its own locks. When
//! there are several, a map says which node has which slot. It is read again whenever a node
//! contradicts it. A place that is no longer on the map is closed: commands that were sent there
//! get an unknown outcome, and queued ones go where the new map says.

mod routing;
mod several;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::several::Several;
use super::path::Path;
use crate::domain::clock::Moment;
use crate::domain::names;
use crate::store::Connector;
use crate::store::redis::ClusterMode;
use crate::store::wire::{Directory, Map, NodeName};

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
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Place {
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
        let place = Place {
            id: FIRST,
            name: None,
            path,
            connector: Some(connector),
            hints_enabled: AtomicBool::new(false),
        };
        Self::One(Arc::new(place))
    }

    /// Several nodes, or one that may be replaced by another.
    pub(crate) fn several(directory: Arc<dyn Directory>, time_limit: Duration, spread: u8) -> Self {
        Self::Several(Box::new(Several::new(directory, time_limit, spread)))
    }

    /// Closes the paths of all nodes that are still to be found.
    pub(crate) fn end(&self) {
        if let Some(several) = self.as_several() {
            several.end();
        }
    }

    fn as_several(&self) -> Option<&Several> {
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

    /// The only place, where there is only one.
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

    /// The unrouted place, where entries without a node wait.
    pub(crate) fn unrouted(&self) -> Option<&Arc<Place>> {
        self.as_several().map(|several| &several.unrouted)
    }

    pub(crate) fn directory(&self) -> Option<&Arc<dyn Directory>> {
        self.as_several().map(|several| &several.directory)
    }

    pub(super) fn cluster(&self) -> Option<&Arc<ClusterMode>> {
        self.as_several().map(|several| &several.cluster)
    }

    /// Grows with each change of the routing.
    pub(crate) fn version(&self) -> u64 {
        self.as_several().map_or(0, |several| several.routing().version())
    }

    /// The names of all known nodes.
    pub(crate) fn names(&self) -> Vec<NodeName> {
        self.all().iter().filter_map(|place| place.name.clone()).collect()
    }

    /// The place of a node, known or not.
    pub(crate) fn named(&self, name: &NodeName) -> Option<Arc<Place>> {
        self.as_several()?.named(name)
    }

    /// Routes a slot to another node, because a node said so.
    pub(crate) fn correct(&self, slot: u16, to: &NodeName) {
        if let Some(several) = self.as_several() {
            several.correct(slot, to);
        }
    }

    /// Has the map read soon. Returns when, if there are several nodes.
    pub(crate) fn look_soon(&self) -> Option<Moment> {
        self.as_several().map(Several::look_soon)
    }

    /// When the map has to be read.
    pub(crate) fn look_due(&self) -> Moment {
        self.as_several().map_or(Moment::NEVER, Several::look_due)
    }

    /// Returns the unrouted place if it is time to read the map.
    pub(crate) fn begin_look(&self, now: Moment) -> Option<&Arc<Place>> {
        let several = self.as_several().filter(|several| several.begins_look(now))?;
        Some(&several.unrouted)
    }

    /// Replaces the map. Returns the places that are not on the new one.
    pub(crate) fn take_map(&self, map: &Map, now: Moment) -> Vec<Arc<Place>> {
        self.as_several().map(|several| several.take_map(map, now)).unwrap_or_default()
    }

    /// The slots, in order, whose owner has changed since the last call.
    pub(crate) fn take_moved(&self) -> Vec<u16> {
        self.as_several().map(Several::take_moved).unwrap_or_default()
    }
}
