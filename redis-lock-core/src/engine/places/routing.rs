//! Which place has which slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Place, PlaceId, UNROUTED};
use crate::domain::names::SLOTS;
use crate::store::wire::{Map, NodeName};

/// An index into the places, or `NO_PLACE`.
type Owner = u16;
const NO_PLACE: Owner = Owner::MAX;

/// Which place has which slot, as far as is known. It is immutable: changes create a new one.
#[derive(Clone)]
pub(super) struct Routing {
    version: u64,
    epoch: u64,
    /// Whether a node said that it does not serve its slots.
    is_unhealthy: bool,
    /// The map that it follows, unless a node has contradicted it since.
    map: Option<Map>,
    places: Vec<Arc<Place>>,
    owners: Vec<Owner>,
    /// Slots whose owner changed since the machines were last notified, and whom they know.
    moved: BTreeMap<u16, PlaceId>,
}

impl Default for Routing {
    fn default() -> Self {
        let owners = vec![NO_PLACE; usize::from(SLOTS)];
        Self {
            version: 0,
            epoch: 0,
            is_unhealthy: false,
            map: None,
            places: Vec::new(),
            owners,
            moved: BTreeMap::new(),
        }
    }
}

impl Routing {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Arc<Place>> {
        self.places.iter()
    }

    pub(super) fn get(&self, id: PlaceId) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.id == id)
    }

    pub(super) fn of_slot(&self, slot: u16) -> Option<&Arc<Place>> {
        let owner = *self.owners.get(usize::from(slot))?;
        self.places.get(usize::from(owner))
    }

    pub(super) fn of_name(&self, name: &NodeName) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.name.as_ref() == Some(name))
    }

    /// Whether another map that says this changes nothing.
    pub(super) fn follows(&self, map: &Map) -> bool {
        self.map.as_ref() == Some(map)
    }

    /// The routing after a new map was read. Known places keep their connections.
    pub(super) fn mapped(&self, map: &Map, make: impl Fn(&NodeName) -> Arc<Place>) -> Self {
        let (version, is_unhealthy) = (self.version + 1, !map.is_healthy);
        let (epoch, known) = (map.epoch, Some(map.clone()));
        let mut next = Self { version, epoch, is_unhealthy, map: known, ..Self::default() };
        for primary in &map.primaries {
            let place = self.of_name(&primary.name).cloned();
            let owner = next.add(place.unwrap_or_else(|| make(&primary.name)));
            for slot in primary.slots.iter().cloned().flatten() {
                next.set(slot, owner);
            }
        }
        // When nodes serve their slots again, all waiters look at once, as if all slots had moved.
        let recovered = self.is_unhealthy && map.is_healthy;
        next.moved = match recovered {
            true => (0..SLOTS).map(|slot| (slot, UNROUTED)).collect(),
            false => self.moved_in(&next),
        };
        next
    }

    /// The routing after a node has said that another node has a slot.
    pub(super) fn corrected(
        &self,
        slot: u16,
        to: &NodeName,
        make: impl Fn(&NodeName) -> Arc<Place>,
    ) -> Self {
        let mut next = Self { version: self.version + 1, map: None, ..self.clone() };
        let known = next.places.iter().position(|place| place.name.as_ref() == Some(to));
        let known = known.and_then(|at| Owner::try_from(at).ok());
        let owner = known.unwrap_or_else(|| next.add(make(to)));
        next.set(slot, owner);
        next.moved.entry(slot).or_insert_with(|| self.owner(slot));
        next
    }

    /// The routing with one more node, which has no known slots.
    pub(super) fn joined(&self, name: &NodeName, make: impl Fn(&NodeName) -> Arc<Place>) -> Self {
        let mut next = self.clone();
        if next.of_name(name).is_none() {
            // The next map has it leave, unless it names it as well.
            next.map = None;
            next.add(make(name));
        }
        next
    }

    /// The routing after the machines were notified of moved slots.
    pub(super) fn notified(&self) -> Self {
        Self { moved: BTreeMap::new(), ..self.clone() }
    }

    /// The slots that have another owner than the machines know, in order.
    pub(super) fn moved(&self) -> Vec<u16> {
        self.moved.keys().copied().collect()
    }

    fn owner(&self, slot: u16) -> PlaceId {
        self.of_slot(slot).map_or(UNROUTED, |place| place.id)
    }

    /// What nodes said of each other's slots in the meantime, and the map does not say, has not moved.
    fn moved_in(&self, next: &Self) -> BTreeMap<u16, PlaceId> {
        let mut moved = self.moved.clone();
        for slot in (0..SLOTS).filter(|slot| self.owner(*slot) != next.owner(*slot)) {
            moved.entry(slot).or_insert_with(|| self.owner(slot));
        }
        moved.retain(|slot, known| *known != next.owner(*slot));
        moved
    }

    fn add(&mut self, place: Arc<Place>) -> Owner {
        self.places.push(place);
        Owner::try_from(self.places.len() - 1).unwrap_or(NO_PLACE)
    }

    fn set(&mut self, slot: u16, owner: Owner) {
        if let Some(at) = self.owners.get_mut(usize::from(slot)) {
            *at = owner;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::path::Path;
    use crate::store::wire::Primary;

    fn place(name: &NodeName) -> Arc<Place> {
        let path = Path::new(Duration::from_secs(1), 0);
        let id = PlaceId::from(name.as_bytes()[0]);
        Arc::new(Place::new(id, Some(Arc::clone(name)), path, None))
    }

    #[test]
    fn g15_all_look_when_nodes_that_were_in_trouble_serve_again() {
        let map = |is_healthy| {
            let primaries = vec![Primary { name: "a:1".into(), slots: vec![0..=SLOTS - 1] }];
            Map { epoch: 1, is_healthy, is_disputed: false, primaries }
        };
        let mut routing = Routing::default();
        for (is_healthy, moved) in [(true, SLOTS), (true, 0), (false, 0), (false, 0), (true, SLOTS)]
        {
            routing = routing.notified().mapped(&map(is_healthy), place);
            assert_eq!(routing.moved().len(), usize::from(moved), "{is_healthy}");
        }
    }

    #[test]
    fn a_map_that_says_the_same_changes_nothing_unless_a_node_has_contradicted_it() {
        let primaries = vec![Primary { name: "a:1".into(), slots: vec![0..=SLOTS - 1] }];
        let map = Map { epoch: 1, is_healthy: true, is_disputed: false, primaries };
        let routing = Routing::default().mapped(&map, place).notified();
        assert!(routing.follows(&map));
        assert!(!routing.follows(&Map { epoch: 2, ..map.clone() }));
        assert!(!routing.follows(&Map { is_healthy: false, ..map.clone() }));
        assert!(!routing.corrected(7, &"b:1".into(), place).follows(&map));
        assert!(!routing.joined(&"b:1".into(), place).follows(&map));
        assert!(routing.joined(&"a:1".into(), place).follows(&map));
    }

    #[test]
    fn slots_that_moved_one_by_one_are_in_order() {
        let to: NodeName = "b:1".into();
        let mut routing = Routing::default();
        for slot in [9, 3, 7, 3] {
            routing = routing.corrected(slot, &to, place);
        }
        // They are found by binary search.
        assert_eq!(routing.moved(), [3, 7, 9]);
    }

    #[test]
    fn what_the_map_does_not_say_has_not_moved() {
        let primaries = vec![Primary { name: "a:1".into(), slots: vec![0..=SLOTS - 1] }];
        let map = Map { epoch: 1, is_healthy: true, is_disputed: false, primaries };
        let known = Routing::default().mapped(&map, place).notified();
        let disputed = known.corrected(7, &"b:1".into(), place);
        assert_eq!(disputed.moved(), [7], "no map may follow");
        assert!(disputed.mapped(&map, place).moved().is_empty());
        let primaries = vec![Primary { name: "c:1".into(), slots: vec![7..=7] }];
        let later = Map { primaries: [map.primaries, primaries].concat(), ..map };
        assert_eq!(disputed.mapped(&later, place).moved(), [7]);
    }
}
