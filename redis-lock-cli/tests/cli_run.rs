//! `redis-lock run`.

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Program, Server, eventually};

use support::{Running, SECOND, code, locks, objects, run, text};

#[test]
fn the_command_runs_under_the_lock_and_its_code_is_passed_on() {
    let server = Server::start();
    let script = "test -n \"$REDIS_LOCK_FENCE\" && echo $REDIS_LOCK_KEY $REDIS_LOCK_TOKEN; exit 7";
    let mut running = Running::start(&server, &["run", "job", "--", "sh", "-c", script]);
    let said = running.line();
    let (key, token) = said.split_once(' ').unwrap();
    assert_eq!(key, "job");
    assert!(token.starts_with("rl1."), "{token}");
    assert_eq!(running.end().0, 7);
    server.assert_clean();
}

#[test]
fn the_lock_is_held_and_renewed_while_the_command_runs() {
    let server = Server::start();
    let script = "echo up; read _";
    let mut command = support::command(&server);
    command.args(["run", "job", "--ttl", "3s", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped());
    let mut program = Program::spawn(command);
    eventually(20 * SECOND, "it is held", || server.exists("lock:job"));
    let token = server.get("lock:job");
    testbed::holds_for(4 * SECOND, "it is held by the same", || server.get("lock:job") == token);
    let label = locks(&server).blocking_status("job").unwrap().holders[0].label.clone().unwrap();
    assert!(label.ends_with(" sh") && label.contains(&format!("/{}", program.pid())), "{label}");
    drop(program.stdin());
    program.wait().unwrap();
    server.assert_clean();
}

#[test]
fn a_key_that_another_program_keeps_for_ever_is_65() {
    let server = Server::start();
    server.run::<()>("SET lock:job theirs");
    let kept = run(&server, &["run", "job", "--wait", "1s", "--json", "--", "echo", "ran"]);
    assert_eq!((code(&kept), kept.stdout.len()), (65, 0));
    let told = &objects(&kept.stderr)[0];
    assert_eq!(told["error"], "foreign");
    assert!(told.to_string().contains("redis-lock release"), "{told}");
    assert_eq!(code(&run(&server, &["release", "job", "--reason", "old", "--yes"])), 0);
    assert_eq!(code(&run(&server, &["run", "job", "--", "true"])), 0);
}

#[test]
fn busy_is_75() {
    let server = Server::start();
    let guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    let busy = run(&server, &["run", "job", "--wait", "none", "--", "echo", "ran"]);
    assert_eq!((code(&busy), busy.stdout.len()), (75, 0));
    assert!(text(&busy.stderr).contains("held by tester"), "{}", text(&busy.stderr));
    let start = Instant::now();
    let busy = run(&server, &["run", "job", "--wait", "300ms", "--json", "--", "echo", "ran"]);
    assert_eq!((code(&busy), busy.stdout.len()), (75, 0));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(objects(&busy.stderr)[0]["error"], "busy");
    drop(guard);
    let free = run(&server, &["run", "job", "--wait", "10s", "--", "echo", "ran"]);
    assert_eq!((code(&free), text(&free.stdout).as_str()), (0, "ran\n"));
}

#[test]
fn what_succeeded_once_is_not_run_again() {
    let server = Server::start();
    let job = |command: &[&str]| {
        let mut words = vec!["run", "job", "--once", "1h", "--label", "nightly"];
        words.extend(command);
        run(&server, &words)
    };
    assert_eq!(code(&job(&["--", "false"])), 1);
    let killed = job(&["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(code(&killed), 143);
    let first = job(&["--", "echo", "ran"]);
    assert_eq!((code(&first), text(&first.stdout).as_str()), (0, "ran\n"));
    let again = job(&["--", "echo", "ran"]);
    assert_eq!((code(&again), again.stdout.len()), (0, 0), "{}", text(&again.stderr));
    let said = text(&again.stderr);
    assert!(said.lines().count() == 1 && said.contains("was completed at 20"), "{said}");
    assert!(said.contains("by nightly"), "{said}");
    let again = job(&["--done-exit-code", "9", "-q", "--", "echo", "ran"]);
    assert_eq!((code(&again), again.stdout.len(), again.stderr.len()), (9, 0, 0));
    let again = job(&["--json", "--", "echo", "ran"]);
    assert_eq!(objects(&again.stderr)[0]["error"], "done");
    let shown = run(&server, &["show", "job"]);
    assert_eq!(code(&shown), 1, "it is free");
    assert!(text(&shown.stdout).contains("done by  nightly"), "{}", text(&shown.stdout));
    let listed = text(&run(&server, &["ls"]).stdout);
    assert!(listed.contains("done by nightly"), "{listed}");
    let shown = &objects(&run(&server, &["show", "job", "--json"]).stdout)[0];
    assert_eq!((&shown["held"], &shown["done"]["by"]), (&false.into(), &"nightly".into()));
    let ended = run(&server, &["release", "job", "--reason", "again", "--yes"]);
    assert_eq!(code(&ended), 0, "{}", text(&ended.stderr));
    let kept = run(&server, &["run", "job", "--min-hold", "1h", "--", "true"]);
    assert_eq!(code(&kept), 0);
    let listed = text(&run(&server, &["ls"]).stdout);
    assert!(listed.contains("(kept by min_hold)"), "{listed}");
    let busy = run(&server, &["run", "job", "-n", "--", "true"]);
    assert!(text(&busy.stderr).contains("kept until 20"), "{}", text(&busy.stderr));
    assert_eq!(code(&run(&server, &["run", "j", "--read", "--once", "1h", "--", "true"])), 64);
}

/// A worker that ends well when the machine shuts down has not done the work of the day.
#[test]
fn a_command_that_is_told_to_end_leaves_no_recorded_success() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT")] {
        let server = Server::start();
        let script = format!("trap 'exit 0' {name}; echo up; while :; do sleep 0.05; done");
        let words = ["run", "job", "--once", "1h", "--", "sh", "-c", &script];
        let mut running = Running::start(&server, &words);
        assert_eq!(running.line(), "up");
        running.signal(signal);
        let (code, _, said) = running.end();
        assert!(code == 0 && said.contains("lock `job` has no recorded success"), "{code} {said}");
        server.assert_clean();
        let mut running = Running::start(&server, &[&["run", "--json"], &words[1..]].concat());
        assert_eq!(running.line(), "up");
        running.signal(signal);
        let (_, _, said) = running.end();
        // The shell may say that its `sleep` was ended.
        let told: Vec<&str> = said.lines().filter(|line| line.starts_with('{')).collect();
        let told = objects(told.join("\n").as_bytes());
        let events: Vec<_> = told.iter().map(|it| it["event"].clone()).collect();
        assert_eq!(events, ["acquired", "stopped"], "{said}");
    }
}

/// What it had started may have done the work, and was ended.
#[test]
fn a_signal_to_what_a_command_left_behind_leaves_no_recorded_success() {
    let server = Server::start();
    let words = ["run", "job", "--once", "1h", "--json", "--", "sh", "-c", "sleep 60 & exit 0"];
    let mut command = support::command(&server);
    command.args(words).stderr(Stdio::piped());
    let mut program = Program::spawn(command);
    let mut said = BufReader::new(program.stderr().unwrap()).lines().map(Result::unwrap);
    let behind = said.find(|line| line.contains("left_behind"));
    assert!(behind.is_some());
    program.signal(Signal::TERM);
    assert!(said.any(|line| line.contains("stopped")));
    assert_eq!(program.wait().unwrap().code(), Some(0));
    server.assert_clean();
}

#[test]
fn a_success_that_the_server_did_not_confirm_is_an_event() {
    let server = Server::start();
    let words =
        ["run", "job", "--once", "1h", "--json", "--", "sh", "-c", "echo up; read _; exit 0"];
    let mut command = support::command(&server);
    command.args(words).stdin(Stdio::piped());
    let mut running = Running::spawn(command);
    assert_eq!(running.line(), "up");
    server.kill9();
    drop(running.program.stdin());
    let (_, _, said) = running.end();
    let events: Vec<_> = objects(said.as_bytes()).iter().map(|it| it["event"].clone()).collect();
    assert!(events.contains(&"unconfirmed".into()), "{said}");
}

#[test]
fn min_hold_keeps_the_lock_after_the_command() {
    let server = Server::start();
    let job = ["run", "job", "--wait", "none", "--min-hold", "20s", "--", "true"];
    assert_eq!(code(&run(&server, &job)), 0);
    assert!(server.pttl("lock:job").is_some_and(|left| left > 15_000));
    assert_eq!(code(&run(&server, &job)), 75);
}

#[test]
fn signals_reach_the_command_and_all_it_started() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")] {
        let server = Server::start();
        // The inner shell reports the signal, which shows that it was not sent to the outer one
        // alone.
        let inner =
            format!("trap 'echo signalled; exit' {name}; echo up; while :; do sleep 0.05; done");
        let script = format!("trap 'wait; exit 9' {name}; sh -c \"{inner}\" & wait");
        let mut running = Running::start(&server, &["run", "job", "--", "sh", "-c", &script]);
        assert_eq!(running.line(), "up");
        running.signal(signal);
        assert_eq!(running.line(), "signalled", "{name}");
        assert_eq!(running.end().0, 9, "{name}");
        server.assert_clean();
    }
}

#[test]
fn an_interrupt_reaches_the_command() {
    let server = Server::start();
    let script = "trap 'echo signalled; exit 9' INT; echo up; while :; do sleep 0.05; done";
    let mut running = Running::start(&server, &["run", "job", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "up");
    running.signal(Signal::INT);
    assert_eq!(running.line(), "signalled");
    assert_eq!(running.end().0, 9);
    server.assert_clean();
}

#[test]
fn a_signal_that_is_ignored_as_under_nohup_does_not_reach_the_command() {
    let server = Server::start();
    let program = env!("CARGO_BIN_EXE_redis-lock");
    let inner = "trap \"exit 5\" TERM; echo up; while :; do sleep 0.05; done";
    let script = format!("trap '' HUP; exec {program} run job -- sh -c '{inner}'");
    let mut command = support::command_of("sh", &server);
    command.args(["-c", &script]);
    let mut running = Running::spawn(command);
    assert_eq!(running.line(), "up");
    running.signal(Signal::HUP);
    testbed::holds_for(Duration::from_millis(300), "the command goes on", || {
        !running.has_no_living_child()
    });
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 5);
}

#[test]
fn a_command_that_a_signal_ends_gives_128_and_its_number() {
    let server = Server::start();
    let mut running =
        Running::start(&server, &["run", "job", "--", "sh", "-c", "echo up; sleep 60"]);
    assert_eq!(running.line(), "up");
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 128 + 15);
    server.assert_clean();
}

#[test]
fn a_signal_ends_the_wait_and_gives_the_place_up() {
    let server = Server::start();
    let guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    let running = Running::start(&server, &["run", "job", "--", "echo", "ran"]);
    let waits = || !locks(&server).blocking_status("job").unwrap().waiters.is_empty();
    eventually(20 * SECOND, "it waits", waits);
    running.signal(Signal::TERM);
    let (code, out, _) = running.end();
    assert_eq!((code, out.as_str()), (128 + 15, ""));
    guard.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_loss_stops_the_command_and_is_76() {
    let server = Server::start();
    let script = "exec 2>/dev/null; trap 'echo stopping; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let mut running = Running::start(&server, &["run", "job", "--json", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "up");
    assert!(locks(&server).blocking_force_release("job", "it hangs").unwrap());
    assert_eq!(running.line(), "stopping");
    let (code, _, errors) = running.end();
    assert_eq!(code, 76);
    let events = objects(errors.as_bytes());
    assert_eq!((&events[0]["event"], &events[0]["key"]), (&"acquired".into(), &"job".into()));
    assert_eq!(events[1]["event"], "lost");
    assert!(events[1]["reason"].as_str().unwrap().contains("it hangs"), "{errors}");
}

#[test]
fn a_command_that_ignores_the_loss_is_killed_with_all_it_started() {
    let server = Server::start();
    let inner = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
    let script = format!("trap '' TERM; sh -c '{}' & wait", inner.replace('\'', "'\\''"));
    let arguments = ["run", "job", "--max-hold", "6s", "--grace", "200ms", "--"];
    let mut running =
        Running::start(&server, &[arguments.as_slice(), &["sh", "-c", &script]].concat());
    let inner: u32 = running.line().parse().unwrap();
    let (code, _, errors) = running.end();
    assert_eq!(code, 76);
    assert!(errors.contains("max_hold"), "{errors}");
    // A zombie, whose exit code init has still to collect, counts as ended.
    eventually(20 * SECOND, "what it started is gone", || {
        std::fs::read_to_string(format!("/proc/{inner}/stat"))
            .map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn commands_that_are_not_there_give_the_lock_back() {
    let server = Server::start();
    assert_eq!(code(&run(&server, &["run", "job", "--", "/nonexistent/program"])), 127);
    assert_eq!(code(&run(&server, &["run", "job", "--", "/"])), 126);
    server.assert_clean();
}

/// Its output is not read.
fn unheard(server: &Server, arguments: &[&str]) -> Program {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = support::command(server);
    command.args(arguments).stderr(writer);
    Program::spawn(command)
}

#[test]
fn a_loss_is_76_although_nobody_reads_what_is_said() {
    let server = Server::start();
    let job = ["run", "job", "--", "sh", "-c", "while :; do sleep 0.05; done"];
    let mut program = unheard(&server, &job);
    eventually(20 * SECOND, "it is held", || server.exists("lock:job"));
    assert!(locks(&server).blocking_force_release("job", "it hangs").unwrap());
    assert_eq!(program.wait().unwrap().code(), Some(76));
}

#[test]
fn the_command_runs_although_nobody_reads_what_is_said() {
    let server = Server::start();
    let mut program = unheard(&server, &["run", "job", "--json", "--", "sh", "-c", "exit 7"]);
    assert_eq!(program.wait().unwrap().code(), Some(7));
    server.assert_clean();
}

#[test]
fn a_command_that_outlived_the_lease_of_a_stopped_program_is_76() {
    let server = Server::start();
    // Which of the loss and the command's end is noticed first must make no difference.
    let start = |number: usize| {
        let (key, ttl) = (format!("job{number}"), "4s");
        let arguments = ["run", &key, "--ttl", ttl, "--", "sh", "-c", "echo up; sleep 8"];
        Running::start(&server, &arguments)
    };
    let mut all: Vec<_> = (0..8).map(start).collect();
    for running in &mut all {
        assert_eq!(running.line(), "up");
        running.signal(Signal::STOP);
    }
    for (number, running) in all.into_iter().enumerate() {
        let key = format!("job{number}");
        // The lock is another holder's, while the command goes on.
        let _other = locks(&server).mutex(key).blocking_acquire().unwrap();
        eventually(30 * SECOND, "the command has ended", || running.has_no_living_child());
        running.signal(Signal::CONT);
        assert_eq!(running.end().0, 76);
    }
}

#[test]
fn a_command_is_not_started_when_the_lock_was_lost_by_then() {
    let server = Server::start();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // The line that says that the lock was acquired has to wait until the test reads.
    let mut full = writer.try_clone().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while std::io::Write::write(&mut full, &[b'x'; 4096]).is_ok() {}
    while std::io::Write::write(&mut full, b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    drop(full);
    let mut command = support::command(&server);
    // It would be found to be missing.
    let job = ["run", "job", "--json", "--max-hold", "5s", "--", "/nonexistent/program"];
    command.args(job).stderr(writer);
    let mut program = Program::spawn(command);
    eventually(20 * SECOND, "it is held", || server.exists("lock:job"));
    eventually(20 * SECOND, "it was held for too long", || !server.exists("lock:job"));
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert_eq!(program.wait().unwrap().code(), Some(76));
}

#[test]
fn the_words_of_the_command_may_be_any_bytes() {
    let server = Server::start();
    let mut command = support::command(&server);
    let word = std::ffi::OsString::from_vec(b"\xff\xfe".to_vec());
    command.args(["run", "job", "--", "printf", "%s"]).arg(&word);
    let output = Program::spawn(command).output("");
    assert_eq!((code(&output), &output.stdout), (0, &word.into_vec()), "{output:?}");
}
