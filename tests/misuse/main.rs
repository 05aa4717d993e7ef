//! What a user meets in the first hours.

#[path = "../support/arena/mod.rs"]
mod arena;

mod blocked;
mod crowded;
mod docs;
mod drained;
mod escaped;
mod figures;
mod lead;
mod messages;
mod moving;
mod nested;
mod outages;
mod pages;
mod pinged;
mod scope;
mod waits;

use messages::{late, twice, unnamed};

#[test]
fn child_process() {
    testbed::dispatch(&[("unnamed", unnamed), ("twice", twice), ("late", late)]);
}
