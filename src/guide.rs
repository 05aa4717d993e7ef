//! The pages of `docs/`, to be read here: nothing in this module is code.

#[doc = include_str!("../docs/GUARANTEES.md")]
pub mod guarantees {}

#[doc = include_str!("../docs/CHOOSING.md")]
pub mod choosing {}

#[doc = include_str!("../docs/TESTING.md")]
pub mod testing {}

#[doc = include_str!("../docs/OBSERVABILITY.md")]
pub mod observability {}

#[doc = include_str!("../docs/PROTOCOL.md")]
pub mod protocol {}

#[doc = include_str!("../docs/FROM-RSLOCK.md")]
pub mod from_rslock {}

#[doc = include_str!("../docs/FROM-REDISSON.md")]
pub mod from_redisson {}

#[doc = include_str!("../docs/FROM-SHEDLOCK.md")]
pub mod from_shedlock {}

// Its examples are tests, so that what is copied from it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub mod readme {}
