//! `redis-lock run` and the processes that its command starts.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Program, Server, eventually, holds_for};

use support::scene::{Scene, state};
use support::{Running, SECOND, code, locks, objects, text};

/// The commands around a worker that are alike in this: their first process ends before the worker.
const SHAPES: [&str; 3] =
    ["sh worker; true", "sh worker & wait", "sh worker | cat > /dev/null; true"];

#[test]
fn after_a_signal_the_lock_is_kept_until_the_last_process_has_ended() {
    let scenes = SHAPES.into_iter().zip([Signal::TERM, Signal::INT, Signal::HUP]);
    // A shell has its background jobs ignore INT.
    let scenes = scenes.filter(|(shape, signal)| !(shape.contains('&') && *signal == Signal::INT));
    for (shape, signal) in scenes.chain([(SHAPES[1], Signal::TERM)]) {
        let (server, scene) = (Server::start(), Scene::new());
        let running = scene.run(&server, &["--grace", "1m"], shape);
        scene.works();
        let mut next = scene.next(&server);
        running.signal(signal);
        assert!(next.wait().unwrap().success());
        scene.assert_no_overlap();
        assert_eq!(running.end().0, 128 + signal.as_raw(), "{shape}");
        server.assert_clean();
    }
}

#[test]
fn what_ignores_the_signal_is_killed_after_the_grace() {
    let (server, scene) = (Server::start(), Scene::new());
    let running = scene.run(&server, &["--grace", "700ms"], "sh stubborn; true");
    scene.works();
    let mut next = scene.next(&server);
    let start = Instant::now();
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 128 + 15);
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    assert!(next.wait().unwrap().success());
    scene.assert_no_overlap();
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_after_the_grace() {
    let (server, scene) = (Server::start(), Scene::new());
    let running = scene.run(&server, &["--grace", "300ms"], "exec sh stubborn");
    scene.works();
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 128 + 9);
    server.assert_clean();
}

#[test]
fn after_the_command_the_lock_is_kept_for_what_it_left_behind() {
    let (server, scene) = (Server::start(), Scene::new());
    let running = scene.run(&server, &["--json", "--grace", "1m"], "sh worker & exit 3");
    scene.works();
    let mut next = scene.next(&server);
    let is_held = || locks(&server).blocking_status("job").unwrap().is_held();
    holds_for(2 * SECOND, "the lock is held", is_held);
    running.signal(Signal::TERM);
    assert!(next.wait().unwrap().success());
    scene.assert_no_overlap();
    let (code, _, errors) = running.end();
    let events = objects(errors.as_bytes());
    assert_eq!(
        (code, &events[1]["event"], &events[1]["key"]),
        (3, &"left_behind".into(), &"job".into())
    );
    assert!(events[1]["pids"].as_array().is_some_and(|pids| !pids.is_empty()), "{errors}");
}

#[test]
fn processes_left_behind_are_reported_after_a_second_and_not_before() {
    let (server, scene) = (Server::start(), Scene::new());
    let left = |seconds: &str| {
        let script = format!("sleep {seconds} & echo $!; exit 3");
        let mut running = scene.run(&server, &[], &script);
        let pid = running.line();
        let start = Instant::now();
        let (code, _, errors) = running.end();
        assert_eq!(code, 3);
        (pid, errors, start.elapsed())
    };
    let (_, errors, took) = left("0.2");
    assert!(errors.is_empty() || took >= SECOND, "after {took:?}: {errors}");
    let (pid, errors, _) = left("5");
    assert!(errors.contains(&format!("still run ({pid}); lock `job` is kept")), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_loss_reaches_what_the_command_left_behind() {
    let (server, scene) = (Server::start(), Scene::new());
    let running = scene.run(&server, &["--grace", "500ms"], "sh stubborn & exit 0");
    scene.works();
    assert!(locks(&server).blocking_force_release("job", "it hangs").unwrap());
    assert_eq!(running.end().0, 76);
    scene.is_silent();
}

#[test]
fn a_daemon_that_leaves_the_group_does_not_keep_the_lock() {
    let (server, scene) = (Server::start(), Scene::new());
    let script = "setsid sh worker > /dev/null 2>&1 & exit 0";
    let mut running = scene.run(&server, &[], script);
    assert!(running.program.wait().unwrap().success());
    server.assert_clean();
    scene.works();
}

#[test]
fn a_zombie_that_its_parent_does_not_collect_does_not_keep_the_lock() {
    let (server, scene) = (Server::start(), Scene::new());
    scene.write(
        "parent",
        "import os, sys, time\n\
         if os.fork() == 0: os._exit(0)\n\
         os.setsid()\n\
         open('ready', 'w').close()\n\
         time.sleep(60)\n",
    );
    let script = "python3 parent > /dev/null 2>&1 & \
                  while [ ! -e ready ]; do sleep 0.02; done; exit 4";
    let running = scene.run(&server, &["--max-hold", "20s"], script);
    assert_eq!(running.end().0, 4);
    server.assert_clean();
}

#[test]
fn the_status_counts_although_the_parent_ignores_sigchld() {
    let (server, scene) = (Server::start(), Scene::new());
    scene.write(
        "deaf",
        "import os, signal, sys\n\
         signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
         os.execv(sys.argv[1], sys.argv[1:])\n",
    );
    let job = |options: &[&str], script: &str| {
        let mut command = support::command_of("python3", &server);
        command.args(["deaf", env!("CARGO_BIN_EXE_redis-lock"), "run", "job"]);
        command.args(options).args(["--", "sh", "-c", script]);
        scene.prepare(&mut command);
        Program::spawn(command).output("")
    };
    let failed = job(&[], "exit 7");
    assert_eq!(code(&failed), 7, "{}", text(&failed.stderr));
    assert_eq!(code(&job(&["--once", "1h"], "exit 0")), 0);
    let again = job(&["--once", "1h", "--done-exit-code", "9"], "exit 0");
    assert_eq!(code(&again), 9, "{}", text(&again.stderr));
}

#[test]
#[cfg(target_os = "linux")]
fn when_the_program_is_killed_its_command_is_killed_too() {
    let (server, scene) = (Server::start(), Scene::new());
    let mut running = scene.run(&server, &[], "echo $$; exec sh stubborn");
    let pid = running.line().parse().unwrap();
    scene.works();
    running.signal(Signal::KILL);
    eventually(20 * SECOND, "the command is killed", || state(pid) == 'Z');
}

#[test]
fn a_command_is_not_begun_when_the_program_has_ended_meanwhile() {
    let mut command = support::bare_command();
    // The first process is not the parent of this one.
    command.args(["__exec", "1", "background", "text", "echo", "ran"]);
    let output = Program::spawn(command).output("");
    assert_eq!((code(&output), output.stdout.len()), (76, 0));
}

#[test]
#[cfg(target_os = "linux")]
fn the_first_process_of_a_container_collects_orphans() {
    let (server, scene) = (Server::start(), Scene::new());
    let container = |words: &[&str]| {
        let mut command = support::command_of("unshare", &server);
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).args(words);
        scene.prepare(&mut command);
        Program::spawn(command)
    };
    if !Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .output()
        .is_ok_and(|it| it.status.success())
    {
        testbed::skip!("no process namespaces");
    }
    let script = "for i in 1 2 3; do (sleep 0.1 &); done; sleep 1; cat /proc/[0-9]*/stat";
    let output =
        container(&[env!("CARGO_BIN_EXE_redis-lock"), "run", "job", "--", "sh", "-c", script])
            .output("");
    let shown = text(&output.stdout);
    assert!(shown.contains("(redis-lock)") && !shown.contains(") Z "), "{shown}");
    // It can't be stopped, so the command goes on.
    let mut stopped = Running::from(container(&[
        env!("CARGO_BIN_EXE_redis-lock"),
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "kill -TSTP 1; kill -TSTP 1; sleep 1; echo on",
    ]));
    assert_eq!(stopped.line(), "on");
}

#[test]
fn tstp_stops_the_command_first_and_cont_continues_it() {
    let (server, scene) = (Server::start(), Scene::new());
    let running = scene.run(&server, &["--ttl", "30s"], "sh worker; true");
    scene.works();
    running.signal(Signal::TSTP);
    eventually(20 * SECOND, "it is stopped", || state(running.program.pid()) == 'T');
    scene.is_silent();
    running.signal(Signal::CONT);
    scene.works();
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 128 + 15);
    server.assert_clean();
}

#[test]
fn a_command_whose_lock_was_lost_while_it_was_stopped_does_not_run_on() {
    for ttl in ["1s", "1m"] {
        let (server, scene) = (Server::start(), Scene::new());
        let running = scene.run(&server, &["--ttl", ttl, "--grace", "1m"], "sh stubborn; true");
        scene.works();
        running.signal(Signal::TSTP);
        eventually(20 * SECOND, "it is stopped", || state(running.program.pid()) == 'T');
        scene.is_silent();
        if ttl == "1m" {
            // The message about it waits in the socket of the stopped program.
            assert!(locks(&server).blocking_force_release("job", "it is stopped").unwrap());
        }
        let next = locks(&server).mutex("job").blocking_acquire().unwrap();
        let before = scene.log();
        running.signal(Signal::CONT);
        assert_eq!(running.end().0, 76, "{ttl}");
        assert_eq!(scene.log(), before, "{ttl}");
        next.blocking_release().unwrap();
    }
}

#[test]
fn the_newest_call_starts_when_the_older_one_has_ended() {
    for (worker, grace) in [("sh worker; true", "1m"), ("sh stubborn; true", "700ms")] {
        let (server, scene) = (Server::start(), Scene::new());
        let older = scene.run(&server, &["--newest", "--grace", grace], worker);
        scene.works();
        let newest = scene.run(&server, &["--newest"], "echo B >> \"$LOG\"");
        assert_eq!(newest.end().0, 0);
        let (code, _, errors) = older.end();
        assert_eq!(code, 79, "{errors}");
        assert!(errors.contains("lock `job` was superseded by a newer call"), "{errors}");
        scene.assert_no_overlap();
        server.assert_clean();
    }
}

#[test]
fn of_newest_calls_that_wait_only_the_last_one_runs() {
    let (server, scene) = (Server::start(), Scene::new());
    let guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    let waiting = scene.run(&server, &["--newest", "--json"], "echo B >> \"$LOG\"");
    eventually(20 * SECOND, "it waits", || {
        !locks(&server).blocking_status("job").unwrap().waiters.is_empty()
    });
    let newest = scene.run(&server, &["--newest"], "echo C >> \"$LOG\"");
    let (code, _, errors) = waiting.end();
    assert_eq!((code, &objects(errors.as_bytes())[0]["error"]), (79, &"superseded".into()));
    guard.blocking_release().unwrap();
    assert_eq!(newest.end().0, 0);
    assert_eq!(scene.log(), "C\n");
}
