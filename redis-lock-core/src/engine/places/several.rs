//! Several nodes: which are known, and when to ask them who has what.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::routing::Routing;
use super::{FIRST, LOBBY, Place};
use crate::domain::clock::Moment;
use crate::engine::path::{LOOK_PAUSE, Path};
use crate::store::directory::{Directory, Map};
use crate::store::redirect::NodeName;
use crate::store::redis::ClusterMode;

/// The same while some node says that it does not serve its slots: when it does again is seen by
/// looking only.
const ILL_PAUSE: Duration = Duration::from_millis(150);

/// How old an answer may be that starts or lengthens a lease, where another node may have taken the
/// place of the one that answers.
const FRESH: Duration = Duration::from_secs(1);

pub(super) struct Several {
    pub(super) directory: Arc<dyn Directory>,
    routing: RwLock<Arc<Routing>>,
    pub(super) lobby: Arc<Place>,
    look: Mutex<Look>,
    /// What locks of keys in several slots are under way.
    pub(super) cluster: Arc<ClusterMode>,
    ids: AtomicU64,
    /// For the paths of nodes to come.
    patience: Duration,
    spread: u8,
}

/// When the map is read again.
#[derive(Debug)]
struct Look {
    at: Moment,
    /// When the last one began.
    last: Option<Moment>,
}

impl Several {
    pub(super) fn new(directory: Arc<dyn Directory>, patience: Duration, spread: u8) -> Self {
        let lobby = Arc::new(Place {
            id: LOBBY,
            name: None,
            path: Path::new(patience, spread),
            connector: None,
            hints_enabled: AtomicBool::new(false),
        });
        Self {
            directory,
            routing: RwLock::default(),
            lobby,
            look: Mutex::new(Look { at: Moment::NEVER, last: None }),
            cluster: Arc::default(),
            ids: AtomicU64::new(FIRST),
            patience,
            spread,
        }
    }

    pub(super) fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.routing.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of_slot(&self, slot: u16) -> Arc<Place> {
        Arc::clone(self.routing().of_slot(slot).unwrap_or(&self.lobby))
    }

    /// The place of a node, known or not.
    pub(super) fn named(&self, name: &NodeName) -> Option<Arc<Place>> {
        if let Some(place) = self.routing().of_name(name) {
            return Some(Arc::clone(place));
        }
        let (_, routing) = self.change(|routing| routing.joined(name, |name| self.make(name)));
        routing.of_name(name).cloned()
    }

    /// The way to a node that was not known.
    fn make(&self, name: &NodeName) -> Arc<Place> {
        let path = Path::new(self.patience, self.spread);
        path.traffic().distrust_after(FRESH);
        Arc::new(Place {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            name: Some(Arc::clone(name)),
            path,
            connector: Some(self.directory.connector(name)),
            hints_enabled: AtomicBool::new(false),
        })
    }

    /// Puts another routing in the place of the present one; returns the one before, and it.
    fn change(&self, change: impl FnOnce(&Routing) -> Routing) -> (Arc<Routing>, Arc<Routing>) {
        let mut routing = self.routing.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(change(&routing));
        let before = std::mem::replace(&mut *routing, Arc::clone(&next));
        (before, next)
    }

    /// A node says that another one has a slot.
    pub(super) fn correct(&self, slot: u16, to: &NodeName) {
        self.change(|routing| routing.corrected(slot, to, |name| self.make(name)));
    }

    /// Uses a new map from now on, unless it is older than the one that is there. Returns the
    /// places that are not on it.
    pub(super) fn take_map(&self, map: &Map, now: Moment) -> Vec<Arc<Place>> {
        {
            let mut look = self.look();
            look.last = Some(now);
            let pace = if map.is_well { self.directory.pace() } else { ILL_PAUSE };
            look.at = look.at.max(now.after(LOOK_PAUSE)).min(now.after(pace));
        }
        if map.epoch < self.routing().epoch() {
            return Vec::new();
        }
        let (before, next) = self.change(|routing| routing.mapped(map, |name| self.make(name)));
        before.places().filter(|place| next.get(place.id).is_none()).cloned().collect()
    }

    /// The slots, in order, that have another owner than when this was last asked.
    pub(super) fn take_moved(&self) -> Vec<u16> {
        let (before, _) = self.change(Routing::notified);
        before.moved()
    }

    /// Has somebody look soon; says when.
    pub(super) fn look_soon(&self) -> Moment {
        let mut look = self.look();
        let soonest = look.last.map_or(Moment::START, |last| last.after(LOOK_PAUSE));
        look.at = look.at.min(soonest.max(Moment::now()));
        look.at
    }

    pub(super) fn look_due(&self) -> Moment {
        self.look().at
    }

    /// Whether it is time to look.
    pub(super) fn begins_look(&self, now: Moment) -> bool {
        let mut look = self.look();
        if now < look.at {
            return false;
        }
        look.at = now.after(self.directory.pace());
        look.last = Some(now);
        true
    }
}
