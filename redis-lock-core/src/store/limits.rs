//! Warns of callers that ask for permits of one key with different limits.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The most keys for which a warning is remembered.
const MOST: usize = 1000;

/// A key and the two limits that were found there.
type Met = (Box<str>, u32, u32);

/// Warns, once for each key and pair of limits, that a holder of a permit asked for it with another
/// limit.
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
