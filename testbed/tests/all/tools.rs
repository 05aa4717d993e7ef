//! The small tools do what they say.

use std::future::{pending, ready};
use std::io::{BufRead, BufReader};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testbed::{
    Child, ChildIo, ClockShim, Program, Turns, WakeLog, cancel_at, cancel_in_flight, eventually,
    holds_for, is_stopped,
};

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn cancelling_lets_a_future_finish_that_needs_fewer_polls() {
    assert_eq!(poll_once(cancel_at(0, ready(1))), Poll::Ready(None));
    assert_eq!(poll_once(cancel_at(1, ready(1))), Poll::Ready(Some(1)));
    assert_eq!(poll_once(cancel_in_flight(1, ready(1))), Poll::Ready(Some(1)));
}

#[test]
fn cancelling_in_flight_does_not_wait_for_the_next_wake_up() {
    assert_eq!(poll_once(cancel_in_flight(1, pending::<()>())), Poll::Ready(None));
    assert_eq!(poll_once(cancel_at(1, pending::<()>())), Poll::Pending);
}

#[test]
#[should_panic(expected = "still not so: pigs fly")]
fn eventually_gives_up() {
    eventually(Duration::from_millis(20), "pigs fly", || false);
}

#[test]
#[should_panic(expected = "no longer so: it is day")]
fn what_has_to_hold_is_watched() {
    let mut day = 3;
    holds_for(Duration::from_secs(1), "it is day", || {
        day -= 1;
        day > 0
    });
}

#[test]
fn turns_end_with_one_that_was_in_time() {
    let (mut turns, mut taken) = (Turns::of("pigs fly in time"), 0);
    while turns.go_on() {
        taken += 1;
        turns.must_be_below(Duration::from_millis(2), Duration::from_millis(1));
    }
    assert_eq!(taken, 1);
}

#[test]
#[should_panic(expected = "late, not so: pigs fly in time; it took 2ms")]
fn turns_that_are_never_in_time_come_to_an_end() {
    let mut turns = Turns::of("pigs fly in time");
    while turns.go_on() {
        turns.must_be_below(Duration::from_millis(2), Duration::from_millis(2));
    }
}

#[test]
fn a_wake_log_names_the_thread_of_each_call() {
    let wakes = WakeLog::new();
    let waker = wakes.waker();
    assert_eq!(wakes.count(), 0);
    waker.wake_by_ref();
    let other = thread::spawn(move || {
        waker.wake();
        thread::current().id()
    });
    assert_eq!(other.join().unwrap(), wakes.threads()[1]);
    assert_eq!(wakes.threads()[0], thread::current().id());
    assert_eq!(wakes.count(), 2);
}

pub(crate) fn echo(io: &mut ChildIo) {
    io.say("ready");
    let heard = io.hear();
    io.say(&format!("echo {heard}"));
}

/// Tells both its clocks when asked.
pub(crate) fn clocks(io: &mut ChildIo) {
    let start = Instant::now();
    loop {
        io.hear();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        io.say(&format!("clocks {wall} {}", start.elapsed().as_secs()));
    }
}

#[test]
fn a_childs_wall_clock_can_be_moved_and_its_other_clock_cannot() {
    let Some(clock) = ClockShim::new() else { testbed::skip!("no C compiler for the clock shim") };
    let mut child = Child::spawn_with("clocks", |command| clock.apply(command));
    let mut ask = || {
        child.tell("");
        let said = child.expect("clocks");
        let (wall, monotonic) = said.split_once(' ').unwrap();
        (wall.parse::<i64>().unwrap(), monotonic.parse::<i64>().unwrap())
    };
    let before = ask();
    clock.set(-3600.0);
    let after = ask();
    assert!((3590..=3600).contains(&(before.0 - after.0)));
    assert!((0..10).contains(&(after.1 - before.1)));
}

pub(crate) fn endless(io: &mut ChildIo) {
    loop {
        io.say("tick");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_child_plays_its_role() {
    let mut child = Child::spawn("echo", &[]);
    child.expect("ready");
    child.tell("hello");
    assert_eq!(child.expect("echo"), "hello");
    assert!(child.wait().success());
}

#[test]
fn a_child_can_be_frozen_and_killed() {
    let mut child = Child::spawn("endless", &[]);
    child.expect("tick");
    child.freeze();
    assert!(is_stopped(child.pid()));
    holds_for(Duration::from_millis(50), "it stands still", || is_stopped(child.pid()));
    child.thaw();
    assert!(!is_stopped(child.pid()));
    child.expect("tick");
    child.terminate();
    assert!(!child.wait().success());
}

/// The process that this program has in a group of its own, and whose parent may be dead.
fn spawn_with_orphan() -> (Program, u32) {
    let mut command = Command::new("/bin/sh");
    // `set -m` gives each background job its own process group.
    command.args(["-c", "set -m; sh -c 'echo $$; exec sleep 600' & exec sleep 600"]);
    let mut program = Program::spawn({
        command.stdout(Stdio::piped());
        command
    });
    let mut line = String::new();
    BufReader::new(program.stdout().unwrap()).read_line(&mut line).unwrap();
    (program, line.trim().parse().unwrap())
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A process that has ended stays listed until its exit code has been asked for.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_program_is_ended_with_all_that_it_started() {
    if !cfg!(target_os = "linux") {
        testbed::skip!("what a program started is found on Linux only");
    }
    let (mut program, orphan) = spawn_with_orphan();
    program.signal(rustix::process::Signal::KILL);
    program.wait().unwrap();
    assert!(is_running(orphan));
    drop(program);
    eventually(Duration::from_secs(5), "the orphan is gone", || !is_running(orphan));
}

pub(crate) fn start_program(io: &mut ChildIo) {
    let (program, orphan) = spawn_with_orphan();
    io.say(&format!("started {} {orphan}", program.pid()));
    io.hear();
}

#[test]
fn no_program_outlives_its_test_process() {
    if !cfg!(target_os = "linux") {
        testbed::skip!("what a program started is found on Linux only");
    }
    let mut child = Child::spawn("start_program", &[]);
    let pids: Vec<u32> =
        child.expect("started").split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_running(*pid)));
    child.kill9();
    eventually(Duration::from_secs(5), "all are gone", || !pids.iter().any(|pid| is_running(*pid)));
}
