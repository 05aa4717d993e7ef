//! `redis-lock run` in a terminal.

#![cfg(target_os = "linux")]

mod support;

use std::process::Command;

use rustix::process::Signal;
use testbed::{Server, eventually};

use support::scene::{Scene, state};
use support::terminal::{CTRL_C, CTRL_Z, Terminal};
use support::{SECOND, locks};

/// A script that waits for the line `word` from the terminal, then writes `got word`.
const READ: &str = "read word < /dev/tty; echo \"got $word\" >> \"$LOG\"";

fn has_read(scene: &Scene) -> bool {
    scene.log().contains("got it")
}

/// The process group in the foreground of a process's terminal.
fn foreground(pid: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name of the program is in brackets.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(5).unwrap().parse().unwrap()
}

/// The name of the program that a process runs.
fn name(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// The id of the program, which `$LOCK` in the terminal's shell was.
fn pid_of_holder(server: &Server) -> u32 {
    let locks = locks(server);
    let mut found = None;
    eventually(20 * SECOND, "the lock is held", || {
        let status = locks.blocking_status("job").unwrap();
        let label = status.holders.first().and_then(|holder| holder.label.clone());
        let pid = label.as_deref().and_then(|label| label.split(['/', ' ']).nth(1)?.parse().ok());
        found = pid;
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_command_can_read_the_terminal_although_its_input_is_a_file() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write("read", READ);
    terminal.line("$LOCK run job -- sh read < /dev/null; echo code $? >> \"$LOG\"");
    pid_of_holder(&server);
    terminal.line("it");
    eventually(20 * SECOND, "it has read and ended", || scene.log().ends_with("got it\ncode 0\n"));
    // The terminal is the shell's again.
    terminal.line("echo again >> \"$LOG\"");
    eventually(20 * SECOND, "the shell reads", || scene.log().ends_with("again\n"));
}

#[test]
fn ctrl_z_stops_the_command_and_fg_continues_it() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    terminal.line("$LOCK run job -- sh -c 'sh worker; true'");
    let pid = pid_of_holder(&server);
    scene.works();
    terminal.press(CTRL_Z);
    eventually(20 * SECOND, "it is stopped", || state(pid) == 'T');
    scene.is_silent();
    terminal.line("fg");
    scene.works();
    terminal.press(CTRL_C);
    eventually(20 * SECOND, "it has ended", || state(pid) == 'Z');
    server.assert_clean();
}

#[test]
fn a_command_that_was_stopped_for_longer_than_the_lease_does_not_run_on() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    terminal.line("$LOCK run job --ttl 4s -- sh -c 'sh worker; true'");
    let pid = pid_of_holder(&server);
    scene.works();
    terminal.press(CTRL_Z);
    eventually(20 * SECOND, "it is stopped", || state(pid) == 'T');
    scene.is_silent();
    let _next = locks(&server).mutex("job").blocking_acquire().unwrap();
    let before = scene.log();
    terminal.line("fg; echo code $? >> \"$LOG\"");
    eventually(20 * SECOND, "it has ended", || scene.log().contains("code"));
    assert_eq!(scene.log(), format!("{before}code 76\n"));
}

#[test]
fn a_loss_in_the_foreground_reaches_what_the_command_started() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    terminal.line("$LOCK run job -- sh -c 'sh worker; true'; echo code $? >> \"$LOG\"");
    pid_of_holder(&server);
    scene.works();
    assert!(locks(&server).blocking_force_release("job", "it hangs").unwrap());
    eventually(20 * SECOND, "it has ended", || scene.log().contains("code"));
    scene.is_silent();
    assert!(scene.log().ends_with("A\ncode 76\n"), "{}", scene.log());
}

#[test]
fn ctrl_c_ends_the_script_around_it_as_well() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write(
        "script",
        "\"$LOCK\" run job -- sh -c 'sh stubborn & exec sleep 60'\necho next >> \"$LOG\"\n",
    );
    terminal.line("sh script");
    let pid = pid_of_holder(&server);
    scene.works();
    // A Ctrl-C that comes while dash starts a program is lost.
    eventually(20 * SECOND, "it sleeps", || name(foreground(pid)) == "sleep");
    terminal.press(CTRL_C);
    eventually(20 * SECOND, "it has ended", || state(pid) == 'Z');
    terminal.line("echo shell >> \"$LOG\"");
    eventually(20 * SECOND, "the script has ended", || scene.log().contains("shell"));
    assert!(!scene.log().contains("next"), "{}", scene.log());
    server.assert_clean();
}

/// The terminal sends the signal to the command, and `redis-lock` sees its exit code alone.
#[test]
fn a_command_that_answers_ctrl_c_by_0_has_succeeded() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write("worker", "trap 'exit 0' INT; while :; do echo A >> \"$LOG\"; sleep 0.05; done");
    terminal.line("$LOCK run job --once 1h -- bash worker; echo code $? >> \"$LOG\"");
    scene.works();
    terminal.press(CTRL_C);
    eventually(20 * SECOND, "it has ended", || scene.log().contains("code 0"));
    assert!(locks(&server).blocking_status("job").unwrap().done.is_some());
}

#[test]
fn ctrl_z_stops_the_script_around_it_as_well() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write("script", "\"$LOCK\" run job -- sh worker\necho next >> \"$LOG\"\n");
    terminal.line("sh script");
    let pid = pid_of_holder(&server);
    scene.works();
    terminal.press(CTRL_Z);
    eventually(20 * SECOND, "it is stopped", || state(pid) == 'T');
    terminal.line("echo shell >> \"$LOG\"");
    eventually(20 * SECOND, "the shell reads", || scene.log().contains("shell"));
    terminal.line("fg");
    scene.works();
    terminal.press(CTRL_C);
    eventually(20 * SECOND, "it has ended", || state(pid) == 'Z');
}

#[test]
fn a_command_in_the_background_that_reads_the_terminal_is_stopped_until_fg() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write("read", READ);
    // The shell says at once what it has seen: `fg` continues no job that it believes to run.
    terminal.line("set -b");
    terminal.line("$LOCK run job -- sh read &");
    let pid = pid_of_holder(&server);
    eventually(20 * SECOND, "it is stopped", || state(pid) == 'T');
    eventually(20 * SECOND, "the shell knows", || terminal.shown().contains("Stopped"));
    terminal.line("fg");
    eventually(20 * SECOND, "it goes on", || state(pid) != 'T');
    terminal.line("it");
    eventually(20 * SECOND, "it has read", || has_read(&scene));
}

#[test]
fn a_job_that_was_brought_to_the_foreground_can_read() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write("read", READ);
    terminal.line("$LOCK run job -- sh -c 'while [ ! -e go ]; do sleep 0.05; done; . ./read' &");
    let pid = pid_of_holder(&server);
    let shell = foreground(pid);
    terminal.line("fg");
    // The shell shows the job before it gives it the terminal.
    eventually(20 * SECOND, "it has the foreground", || foreground(pid) != shell);
    scene.write("go", "");
    terminal.line("it");
    eventually(20 * SECOND, "it has read", || has_read(&scene));
}

#[test]
fn a_process_beside_it_can_read_the_terminal() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    scene.write("read", READ);
    terminal.line("$LOCK run job -- sh -c 'echo up; sh worker' | { head -1; sh read; }");
    let pid = pid_of_holder(&server);
    scene.works();
    terminal.line("it");
    eventually(20 * SECOND, "the process beside it has read", || has_read(&scene));
    scene.works();
    // It has the foreground now, and passes the signal on.
    terminal.press(CTRL_C);
    eventually(20 * SECOND, "it has ended", || state(pid) == 'Z');
    server.assert_clean();
}

#[test]
fn ctrl_z_does_not_stop_for_ever_what_no_shell_can_continue() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut program = Command::new("setsid");
    program.args([
        "--ctty",
        "--wait",
        env!("CARGO_BIN_EXE_redis-lock"),
        "run",
        "job",
        "--",
        "sh",
        "worker",
    ]);
    let mut terminal = Terminal::with(&server, &scene, program);
    let pid = pid_of_holder(&server);
    scene.works();
    terminal.press(CTRL_Z);
    scene.works();
    assert_ne!(state(pid), 'T');
    scene.works();
    terminal.press(CTRL_C);
    eventually(20 * SECOND, "it has ended", || state(pid) == 'Z');
}

#[test]
fn a_terminal_that_is_closed_ends_the_command() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut terminal = Terminal::open(&server, &scene);
    terminal.line("$LOCK run job -- sh -c 'sh worker; true'");
    let pid = pid_of_holder(&server);
    scene.works();
    terminal.shell.signal(Signal::HUP);
    eventually(20 * SECOND, "it has ended", || state(pid) == 'Z');
    scene.is_silent();
    server.assert_clean();
}
