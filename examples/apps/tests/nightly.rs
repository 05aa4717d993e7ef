//! The job: three machines, one run.

use std::process::{Child, Command, Stdio};

use testbed::Server;

fn machine(url: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightly"));
    command.env("REDIS_URL", url).stdout(Stdio::piped()).spawn().unwrap()
}

fn outcome(machine: Child) -> String {
    let output = machine.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn one_of_three_machines_runs_it() {
    let server = Server::start();
    let mut outcomes = [(); 3].map(|()| machine(&server.url())).map(outcome);
    outcomes.sort();
    assert_eq!(outcomes, ["DoneElsewhere", "DoneElsewhere", "Ran"]);
    assert_eq!(outcome(machine(&server.url())), "DoneElsewhere", "one that is late");
    assert!(server.run::<i64>("PTTL lock:nightly:2026-11-26") > 0, "it is noted, with an end");
}
