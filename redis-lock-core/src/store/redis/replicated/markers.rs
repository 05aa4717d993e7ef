//! Keys that are written before waiting for replicas.
//!
//! They are kept, and are the same for all managers: a server without memory refuses to create a key,
//! and still changes the ttl of one.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::names::{beside_locks, tag_of};
use crate::store::redis::nodes::Member;
use crate::store::redis::{Terms, Way};

/// What the keys are for, in their names.
const MARKER: &str = "r";

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
        let Self { terms, tags, .. } = self;
        if slots.is_empty() {
            return [beside_locks(&terms.namespace, "", MARKER)].into();
        }
        let key = |slot| {
            let tag = tags.entry(slot).or_insert_with(|| tag_of(slot));
            beside_locks(&terms.namespace, tag, MARKER)
        };
        slots.into_iter().map(key).collect()
    }
}
