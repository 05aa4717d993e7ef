//! The layers under axum, over real HTTP.

mod client;
mod crowd;
mod gate;
mod idempotency;
mod idempotency_faults;
mod lock;
mod scopes;
#[cfg(feature = "tracing")]
mod told;

#[test]
fn child_process() {
    testbed::dispatch(&[("serve", crowd::serve_payments)]);
}
