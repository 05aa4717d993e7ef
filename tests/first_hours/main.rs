//! What a user meets in the first hours.

#[path = "../arena/mod.rs"]
mod arena;

mod scope;
