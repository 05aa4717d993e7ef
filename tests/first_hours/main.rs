//! What a user meets in the first hours.

#[path = "../arena/mod.rs"]
mod arena;

mod blocked;
mod lead;
mod nested;
mod scope;
