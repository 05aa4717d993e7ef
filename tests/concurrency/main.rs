//! Corners where several troubles meet: forked processes, wakers of the user that block, calls with
//! time limits, crowds, and messages that only make things faster.

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod attribute;
mod bounds;
mod crowds;
mod descriptors;
mod forked;
mod promptness;
mod refused;
mod releases;
#[cfg(feature = "tracing")]
mod subscriber;
mod trouble;
mod wakers;

#[test]
fn child_process() {
    testbed::dispatch(&[
        ("forked_by_engine", forked::by_engine),
        ("forked_by_task", forked::by_task),
        ("forked_by_thread", forked::by_thread),
        ("forked_by_transactions", forked::by_transactions),
        ("forked_idle", forked::idle),
        ("forked_twice", forked::twice),
    ]);
}
