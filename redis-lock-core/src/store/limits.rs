//! Callers that disagree on the number of permits.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// So many keys are remembered as reported about.
const MOST: usize = 1000;

/// A key, and the two limits that were met there.
type Met = (Box<str>, u32, u32);

/// Says, once for each key and pair of limits, that somebody who holds a permit asked for another
/// number of them.
pub(super) fn differ(key: &str, limit: u32, other: u32) {
    static REPORTED: Mutex<Option<HashSet<Met>>> = Mutex::new(None);
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let reported = reported.get_or_insert_default();
    if reported.len() >= MOST {
        reported.clear();
    }
    if reported.insert((key.into(), limit, other)) {
        crate::observe::log::limits_differ(key, limit, other);
    }
}
