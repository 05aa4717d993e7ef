//! What must hold when servers, networks, processes and callers fail. `CASES.md` lists the cases.

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod bad_input;
mod cancellation;
mod clock;
mod connection;
mod durability;
mod names;
mod paths;
mod process;
mod refusing;
mod release;
mod renewal;
mod server_state;
mod waiting;

#[test]
fn child_process() {
    testbed::dispatch(&[
        ("clock_hold", clock::hold),
        ("process_drop", process::drop_and_end),
        ("process_hold", process::hold),
        ("release_end", release::end),
        ("renewal_run_body", renewal::run_body),
        ("waiting_hold", waiting::hold),
    ]);
}
