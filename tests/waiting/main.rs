//! Waiting for a lock and handing it over, on real servers: which waiter is woken, in which order,
//! what is left behind, and that no caller waits for ever.
//!
//! Each case runs on the server of this machine, where a script compares and deletes, and on Valkey 9,
//! which has a command for that.

#[macro_use]
mod support;

mod background;
mod behind;
mod channels;
mod clock;
mod deaths;
mod denied;
mod foreign;
mod herd;
mod hints;
mod history;
mod mark;
mod mayhem;
mod queue;
mod storm;
mod turns;

#[test]
fn child_process() {
    testbed::dispatch(&[
        ("crowd", mayhem::crowd),
        ("denied", denied::denied),
        ("have", deaths::have),
        ("take_turns", turns::take_turns),
        ("wait_in_line", queue::wait_in_line),
    ]);
}
