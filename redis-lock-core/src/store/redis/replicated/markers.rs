//! Keys that are written before waiting for replicas.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::names::tag_of;
use crate::store::redis::nodes::Member;
use crate::store::redis::{Terms, Way};

/// Chooses keys that this server has, to be written before waiting.
pub(in crate::store::redis) struct Markers {
    way: Way,
    terms: Terms,
    /// Tags of slots that were computed before, which takes some time.
    tags: BTreeMap<u16, String>,
}

impl Markers {
    pub(in crate::store::redis) fn new(way: Way, terms: Terms) -> Self {
        Self { way, terms, tags: BTreeMap::new() }
    }

    pub(super) fn keys(&mut self) -> VecDeque<String> {
        let slots = self.way.member().map(Member::some_slots).unwrap_or_default();
        if slots.is_empty() {
            return [self.terms.side("", "r")].into();
        }
        let Self { terms, tags, .. } = self;
        let key = |slot| terms.side(tags.entry(slot).or_insert_with(|| tag_of(slot)), "r");
        slots.into_iter().map(key).collect()
    }
}
