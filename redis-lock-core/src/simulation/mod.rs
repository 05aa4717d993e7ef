//! The real engine in a simulated world: time, network, server, callers and all that goes wrong.
//!
//! Real are the public API, the machines of locks, table, timers, reaper, queue, epochs and the
//! decisions about connections. Simulated are time and the clocks of machines, the connections, the
//! server (the model that the memory store is, and that conformance holds to the scripts), the
//! threads, and the programs that use all this. A seed decides everything, so a history that fails
//! fails again, and can be made short.

#![expect(
    clippy::struct_excessive_bools,
    reason = "what happens in a history comes in any combination"
)]

mod books;
mod caller;
mod clock;
mod deviation;
mod executor;
mod heirs;
mod heritage;
mod history;
mod key_space;
mod mishaps;
mod network;
mod pipe;
mod plan;
mod planned_trouble;
mod process;
mod quorum;
pub(crate) mod random;
mod readers;
mod second_calls;
mod server;
mod server_clock;
mod shown;
mod shrink;
mod stay;
mod successes;
mod tests;
mod transacting;
mod world;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use plan::HistoryPlan;
use world::{Ran, World};

fn key_name(key: usize) -> String {
    format!("k{key}")
}

/// The key as it stands on the server.
fn full_key(key: usize) -> String {
    format!("lock:k{key}")
}

thread_local! {
    /// The message of a panic on a thread that simulates.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a history to its end, or to the first thing that must not be.
fn run(plan: &HistoryPlan, keeps_lines: bool) -> Ran {
    listen_to_panics();
    PANIC.take();
    let mut world = World::new(plan, keeps_lines);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    // Also one that was caught where the user's code runs.
    if let Some(what) = PANIC.take() {
        world.violated(what);
    }
    if ended.is_err() {
        // Its state may be inconsistent, so nothing of it is touched again.
        let ran = world.abandoned();
        crate::domain::env::simulated::end();
        return ran;
    }
    let (steps, hash) = world.so_far();
    let taken_apart = catch_unwind(AssertUnwindSafe(|| world.end()));
    crate::domain::env::simulated::end();
    taken_apart.unwrap_or_else(|_| {
        let violation = Some(PANIC.take().unwrap_or_else(|| "a panic at the end".into()));
        Ran { violation, steps, hash, ..Ran::default() }
    })
}

/// Has panics on threads that simulate noted, not printed.
fn listen_to_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if crate::domain::env::simulated::is_active() {
                PANIC.with_borrow_mut(|said| {
                    said.get_or_insert(panic.to_string());
                });
            } else {
                others(panic);
            }
        }));
    });
}
