//! What threads share in the core, under a scheduler that tries many orders of their steps.
//!
//! The build script puts the sources of the core's primitives into the worlds of `worlds/`, where the types of
//! `crate::sync` are those of the scheduler, and once more with each change of `changes.in`, which must be found.

pub mod notify;

/// Whether a fault is planted for the simulation; never so here.
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

/// A world, perhaps with a change of a primitive.
pub struct Case {
    pub world: &'static str,
    /// Empty where nothing is changed.
    pub change: &'static str,
    pub run: fn(),
}

#[allow(dead_code, unused_imports, clippy::all)]
mod worlds {
    use super::Case;

    include!(concat!(env!("OUT_DIR"), "/worlds.rs"));
}

pub use worlds::CASES;
