//! Tests of the package itself.

mod cluster;
mod options;
mod proxy;
mod sentinel;
mod server;
mod tools;

#[test]
fn child_process() {
    testbed::dispatch(&[
        ("abandon", server::abandon),
        ("clocks", tools::clocks),
        ("echo", tools::echo),
        ("endless", tools::endless),
        ("start_program", tools::start_program),
    ]);
}
