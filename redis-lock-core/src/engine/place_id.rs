//! The number of a place.

/// Identifies a place of one engine. No number is used twice.
pub(crate) type PlaceId = u64;
