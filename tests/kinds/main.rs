//! Each kind of lock, on real servers of both families and in memory.

#[path = "../support/arena/mod.rs"]
mod arena;

mod adopting;
mod all;
mod fences;
mod holding;
mod margin;
mod newest;
mod numbers;
mod numbers_under_faults;
mod once;
mod once_faults;
mod other_node;
mod pauses;
mod permits;
mod queue;
mod read_write;
#[cfg(feature = "serde")]
mod replay;
#[cfg(feature = "serde")]
mod replay_faults;
mod same;
#[cfg(feature = "serde")]
mod share;
mod slots;
mod status;
mod tenants;
mod together;

#[test]
fn child_process() {
    testbed::dispatch(&[
        ("fences_writer", fences::writer),
        ("margin_holder", margin::holder),
        ("pauses_actor", pauses::actor),
        ("once_dies", once_faults::dies),
        ("once_waits", once_faults::waits),
        ("once_works", once_faults::works),
        ("numbers_holder", numbers_under_faults::holder),
        ("queue_waits_until_killed", queue::waits_until_killed),
        #[cfg(feature = "serde")]
        ("replay_works_until_killed", replay_faults::works_until_killed),
        #[cfg(feature = "serde")]
        ("share_bursts", share::bursts),
        ("slots_take_all_the_time", slots::take_all_the_time),
    ]);
}
