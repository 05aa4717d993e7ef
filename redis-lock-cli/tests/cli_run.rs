//! `redis-lock run`.

mod scenery;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Program, Server, eventually};

use scenery::{Running, SECOND, code, locks, objects, run, text};

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
    let mut command = scenery::command(&server);
    command.args(["run", "job", "--ttl", "300ms", "--", "sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let mut program = Program::spawn(command);
    eventually(5 * SECOND, "it is held", || server.exists("lock:job"));
    let token = server.get("lock:job");
    testbed::holds_for(Duration::from_millis(700), "it is held by the same", || {
        server.get("lock:job") == token
    });
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
    assert_eq!(code(&shown), 1, "nobody holds it");
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
    eventually(5 * SECOND, "it waits", waits);
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
    let arguments = ["run", "job", "--max-hold", "500ms", "--grace", "200ms", "--"];
    let mut running =
        Running::start(&server, &[arguments.as_slice(), &["sh", "-c", &script]].concat());
    let inner: u32 = running.line().parse().unwrap();
    let (code, _, errors) = running.end();
    assert_eq!(code, 76);
    assert!(errors.contains("max_hold"), "{errors}");
    // A zombie, whose exit code init has still to collect, counts as ended.
    eventually(SECOND, "what it started is gone", || {
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
