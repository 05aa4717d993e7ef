//! Several nodes: the present routing, and when to read the map again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::routing::Routing;
use super::{FIRST, Place, UNROUTED};
use crate::domain::clock::Moment;
use crate::engine::path::{LOOK_PAUSE, Path};
use crate::store::groups::ClusterMode;
use crate::store::wire::{Directory, Map, NodeName};
use crate::sync::NonPoisonMutex;

/// How often the map is read while a node says that it does not serve its slots, or nodes contradict
/// each other: only another read shows when that is over.
const UNCERTAIN_PAUSE: Duration = LOOK_PAUSE;

/// How old an answer may be to start or lengthen a lease: the node may have been replaced before it
/// answered.
const FRESH: Duration = Duration::from_secs(1);

pub(crate) struct Several {
    pub(crate) directory: Arc<dyn Directory>,
    routing: RwLock<Arc<Routing>>,
    /// Where entries without a node wait for a map.
    pub(crate) unrouted: Arc<Place>,
    look: NonPoisonMutex<Look>,
    /// The acquisitions of keys in several slots that are under way.
    pub(crate) cluster: Arc<ClusterMode>,
    ids: AtomicU64,
    /// Whether the engine has ended. Then no thread connects to new nodes.
    is_over: AtomicBool,
    /// The time limit for paths of new nodes.
    time_limit: Duration,
    spread: u8,
}

/// When the map is read again.
#[derive(Debug)]
struct Look {
    at: Moment,
    /// When the last read began.
    last: Option<Moment>,
}

impl Several {
    pub(super) fn new(directory: Arc<dyn Directory>, time_limit: Duration, spread: u8) -> Self {
        let unrouted = Arc::new(Place::new(UNROUTED, None, Path::new(time_limit, spread), None));
        Self {
            directory,
            routing: RwLock::default(),
            unrouted,
            look: NonPoisonMutex::new(Look { at: Moment::NEVER, last: None }),
            cluster: Arc::default(),
            ids: AtomicU64::new(FIRST),
            is_over: AtomicBool::new(false),
            time_limit,
            spread,
        }
    }

    pub(super) fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.routing.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a map was ever read.
    pub(crate) fn has_map(&self) -> bool {
        self.routing().version() > 0
    }

    /// The names of all known nodes.
    pub(crate) fn names(&self) -> Vec<NodeName> {
        self.routing().places().filter_map(|place| place.name.clone()).collect()
    }

    /// Closes places that are made from now on. Places are made while the routing is locked, so a
    /// later listing of all places contains every open one.
    pub(crate) fn end(&self) {
        let _locked = self.routing.write().unwrap_or_else(PoisonError::into_inner);
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn of_slot(&self, slot: u16) -> Arc<Place> {
        Arc::clone(self.routing().of_slot(slot).unwrap_or(&self.unrouted))
    }

    /// The place of a node, known or not.
    pub(crate) fn named(&self, name: &NodeName) -> Option<Arc<Place>> {
        if let Some(place) = self.routing().of_name(name) {
            return Some(Arc::clone(place));
        }
        let (_, routing) = self.change(|routing| routing.joined(name, |name| self.make(name)));
        routing.of_name(name).cloned()
    }

    /// Creates the place of a new node.
    fn make(&self, name: &NodeName) -> Arc<Place> {
        let path = Path::new(self.time_limit, self.spread);
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        {
            let mut traffic = path.traffic();
            traffic.distrust_after(FRESH);
            if self.is_over.load(Ordering::Acquire) {
                traffic.end();
            }
        }
        let connector = self.directory.connector(name);
        Arc::new(Place::new(id, Some(Arc::clone(name)), path, Some(connector)))
    }

    /// Replaces the routing; returns the old one and the new one.
    fn change(&self, change: impl FnOnce(&Routing) -> Routing) -> (Arc<Routing>, Arc<Routing>) {
        let mut routing = self.routing.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(change(&routing));
        let before = std::mem::replace(&mut *routing, Arc::clone(&next));
        (before, next)
    }

    /// Routes a slot to another node, because a node said so.
    pub(crate) fn correct(&self, slot: u16, to: &NodeName) {
        self.change(|routing| routing.corrected(slot, to, |name| self.make(name)));
    }

    /// Replaces the map unless the present one is newer. Returns the places that are not on the new
    /// one.
    pub(crate) fn take_map(&self, map: &Map, now: Moment) -> Vec<Arc<Place>> {
        {
            let mut look = self.look.lock();
            look.last = Some(now);
            let is_certain = map.is_healthy && !map.is_disputed;
            let look_interval =
                if is_certain { self.directory.look_interval() } else { UNCERTAIN_PAUSE };
            look.at = look.at.max(now.after(LOOK_PAUSE)).min(now.after(look_interval));
        }
        let routing = self.routing();
        if map.epoch < routing.epoch() || routing.follows(map) {
            return Vec::new();
        }
        let (before, next) = self.change(|routing| routing.mapped(map, |name| self.make(name)));
        before.places().filter(|place| next.get(place.id).is_none()).cloned().collect()
    }

    /// The slots, in order, whose owner has changed since the last call.
    pub(crate) fn take_moved(&self) -> Vec<u16> {
        if self.routing().moved().is_empty() {
            return Vec::new();
        }
        let (before, _) = self.change(Routing::notified);
        before.moved()
    }

    /// Has the map read soon; returns when.
    pub(crate) fn look_soon(&self) -> Moment {
        let mut look = self.look.lock();
        let soonest = look.last.map_or(Moment::START, |last| last.after(LOOK_PAUSE));
        look.at = look.at.min(soonest.max(Moment::now()));
        look.at
    }

    pub(crate) fn look_due(&self) -> Moment {
        self.look.lock().at
    }

    /// Whether it is time to read the map.
    pub(crate) fn begins_look(&self, now: Moment) -> bool {
        let mut look = self.look.lock();
        if now < look.at {
            return false;
        }
        look.at = now.after(self.directory.look_interval());
        look.last = Some(now);
        true
    }
}
