//! `ls`, `show`, `watch` and `release`.

mod support;

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use testbed::{Program, Server, eventually};

use support::{Running, SECOND, answering, code, locks, objects, run, text};

/// Fields whose values are not known beforehand, checked by their sort and put aside.
fn settled(mut status: Value) -> Value {
    for holder in status["holders"].as_array_mut().unwrap() {
        assert!(holder["token"].take().is_string());
        assert!(holder["ttl_ms"].take().as_u64().is_some_and(|ttl| ttl <= 30_000));
        let since = holder["since"].take();
        let since = since.as_str().unwrap();
        assert!(since.len() == 24 && since.starts_with("20") && since.ends_with('Z'), "{since}");
    }
    assert!(status["server"]["version"].take().as_str().unwrap().contains(' '));
    assert!(status["server"]["release"].take().is_string());
    status
}

#[test]
fn show_has_the_documented_fields() {
    let server = Server::start();
    let guard = locks(&server).mutex("order:42").fenced().blocking_acquire().unwrap();
    let shown = run(&server, &["show", "order:42", "--json"]);
    assert_eq!(code(&shown), 0, "{}", text(&shown.stderr));
    let [status] = objects(&shown.stdout).try_into().unwrap();
    assert_eq!(
        settled(status),
        json!({
            "key": "order:42", "kind": "mutex", "limit": null, "held": true, "waiters": [],
            "done": null, "kept_until": null,
            "holders": [{
                "token": null, "label": "tester", "since": null, "ttl_ms": null,
                "fence": guard.fence(), "idle": false, "idle_since": null,
                "second_call": null, "slot": null,
            }],
            "server": {
                "version": null, "release": null, "scripts": true, "topology": "single",
                "epoch": null, "nodes": [],
            },
        })
    );
    let plain = text(&run(&server, &["show", "order:42"]).stdout);
    assert!(plain.contains("held by  tester") && !plain.contains('\x1b'), "{plain}");
    guard.blocking_release().unwrap();
    let free = run(&server, &["show", "order:42", "--json"]);
    assert_eq!(code(&free), 1);
    assert_eq!(objects(&free.stdout)[0]["kind"], "free");
}

#[test]
fn what_another_process_may_only_keep_is_shown_as_such() {
    let server = Server::start();
    let locks = locks(&server);
    // A lease stays only once its manager can receive the message that another client wants it.
    eventually(SECOND * 20, "it is shown as one that may be idle", || {
        let request = locks.mutex("order:42").linger(SECOND * 30);
        let _guard = request.blocking_acquire().unwrap();
        let shown = objects(&run(&server, &["show", "order:42", "--json"]).stdout);
        let holder = &shown[0]["holders"][0];
        assert_eq!(holder["idle_since"], json!(null));
        holder["idle"].is_null()
    });
    let plain = text(&run(&server, &["show", "order:42"]).stdout);
    assert!(plain.contains("idle   maybe"), "{plain}");
}

#[test]
fn what_calls_ask_for_besides_their_turn_is_shown() {
    let server = Server::start();
    let locks = locks(&server);
    let holder = locks.mutex("job").newest().blocking_acquire().unwrap();
    let waiting = std::thread::spawn({
        let request = locks.mutex("job").queue(3).wait(SECOND * 60);
        move || request.blocking_acquire().map(drop)
    });
    eventually(SECOND * 20, "the holder and the waiter are shown", || {
        let shown = objects(&run(&server, &["show", "job", "--json"]).stdout);
        assert_eq!(shown[0]["holders"][0]["second_call"], "newest");
        shown[0]["waiters"][0]["second_call"] == "queue = 3"
    });
    let plain = text(&run(&server, &["show", "job"]).stdout);
    assert!(plain.contains("held by  tester (newest)\n"), "{plain}");
    assert!(plain.contains("waits    tester (queue = 3), for "), "{plain}");
    let listed = text(&run(&server, &["ls"]).stdout);
    assert!(listed.contains("tester (newest)\n"), "{listed}");
    holder.blocking_release().unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn ls_lists_what_matches_and_knows_every_kind() {
    let server = Server::start();
    let locks = locks(&server);
    let _mutex = locks.mutex("a:1").blocking_acquire().unwrap();
    let _readers = [(); 2].map(|()| locks.read("a:2").blocking_acquire().unwrap());
    let _permit = locks.permit("a:3", 4).blocking_acquire().unwrap();
    let _other = locks.mutex("b:1").blocking_acquire().unwrap();
    server.run::<()>("SET lock:a:4 foreign PX 60000");
    let mut listed = objects(&run(&server, &["ls", "a:*", "--json"]).stdout);
    listed.sort_by_key(|status| status["key"].to_string());
    let gist: Vec<_> = listed
        .iter()
        .map(|it| {
            json!([it["key"], it["kind"], it["limit"], it["holders"].as_array().unwrap().len()])
        })
        .collect();
    let wanted = [
        json!(["a:1", "mutex", null, 1]),
        json!(["a:2", "read", null, 2]),
        json!(["a:3", "permit", 4, 1]),
        json!(["a:4", "foreign", null, 1]),
    ];
    assert_eq!(gist, wanted);
    let table = text(&run(&server, &["ls"]).stdout);
    assert!(table.starts_with("KEY") && table.lines().count() == 1 + 6, "{table}");
    let elsewhere = run(&server, &["ls", "--namespace", "other", "--json"]);
    assert_eq!((code(&elsewhere), elsewhere.stdout.len()), (0, 0));
}

#[test]
fn watch_writes_a_picture_whenever_something_has_changed() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.mutex("job").blocking_acquire().unwrap();
    let mut watching = Running::start(&server, &["watch", "--json", "--interval", "20ms"]);
    let mut picture = || serde_json::from_str::<Value>(&watching.line()).unwrap();
    assert_eq!(picture()["locks"][0]["key"], "job");
    guard.blocking_release().unwrap();
    assert_eq!(picture()["locks"], json!([]));
    watching.signal(Signal::INT);
    assert_eq!(watching.end().0, 0);
    let twice = run(&server, &["watch", "--count", "2", "--interval", "1ms"]);
    assert_eq!(text(&twice.stdout).matches("KEY").count(), 1, "nothing has changed");
}

#[test]
fn release_asks_first() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.mutex("job").blocking_acquire().unwrap();
    for answer in ["", "n\n", "perhaps\n"] {
        let asked = answering(&server, &["release", "job", "--reason", "x"], answer);
        assert_eq!(code(&asked), 1, "{answer:?}");
        let said = text(&asked.stderr);
        assert!(said.contains("job is held by tester"), "{said}");
        assert_eq!(said.contains("--yes"), answer.is_empty(), "who can't answer is told: {said}");
    }
    guard.blocking_verify().unwrap();
    let agreed = answering(&server, &["release", "job", "--reason", "it hangs"], "y\n");
    assert_eq!((code(&agreed), text(&agreed.stdout).as_str()), (0, "released job\n"));
    let error = guard.blocking_release().unwrap_err().to_string();
    assert!(error.contains("it hangs"), "{error}");
    let again = run(&server, &["release", "job", "--reason", "x", "--json"]);
    assert_eq!(code(&again), 1);
    let expected = json!({ "key": "job", "released": false, "reason": "x" });
    assert_eq!(objects(&again.stdout), [expected]);
}

#[test]
fn a_holder_that_came_after_the_look_keeps_the_lock() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.mutex("job").blocking_acquire().unwrap();
    let mut command = support::command(&server);
    command.args(["release", "job", "--reason", "x"]).stdin(Stdio::piped());
    let mut program = Program::spawn(command);
    let (mut errors, mut said) = (program.stderr().unwrap(), vec![0; 8]);
    while !said.ends_with(b"[y/N] ") {
        let mut byte = [0];
        errors.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    guard.blocking_release().unwrap();
    let next = locks.mutex("job").blocking_acquire().unwrap();
    program.stdin().unwrap().write_all(b"y\n").unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(1));
    next.blocking_verify().unwrap();
}

#[test]
fn the_exit_code_is_right_although_nobody_reads_what_is_written() {
    let server = Server::start();
    let unread = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = support::command(&server);
        command.args(arguments).stdout(writer);
        code(&Program::spawn(command).output(""))
    };
    assert_eq!(unread(&["acquire", "job", "--ttl", "1m"]), 74, "no caller has the token");
    server.assert_clean();
    assert_eq!(unread(&["show", "job"]), 1);
    assert_eq!(unread(&["release", "job", "--reason", "x", "--yes"]), 1);
    let guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    assert_eq!((unread(&["show", "job"]), unread(&["ls"]), unread(&["man"])), (0, 0, 0));
    assert_eq!(unread(&["release", "job", "--reason", "x", "--yes"]), 0);
    assert!(guard.blocking_release().is_err());
}

#[test]
fn release_with_yes_asks_nothing() {
    let server = Server::start();
    let guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    let released = run(&server, &["release", "job", "--reason", "x", "--yes", "--json"]);
    assert_eq!((code(&released), released.stderr.len()), (0, 0));
    assert_eq!(objects(&released.stdout)[0]["released"], true);
    assert!(guard.blocking_release().is_err());
}

#[test]
fn mistakes_and_missing_servers_have_exit_codes_of_their_own() {
    let server = Server::start();
    assert_eq!(code(&run(&server, &["shwo", "x"])), 64);
    assert_eq!(code(&run(&server, &["release", "x"])), 64, "a reason is required");
    assert_eq!(code(&run(&server, &["run", "x", "--ttl", "5", "--", "true"])), 64);
    assert_eq!(code(&run(&server, &["show", ""])), 78);
    assert_eq!(code(&run(&server, &["ls", "--url", "http://x"])), 78);
    let mut unnamed = support::command(&server);
    let unnamed = unnamed.env_remove("REDIS_URL").arg("ls").output().unwrap();
    assert_eq!(code(&unnamed), 78);
    assert!(text(&unnamed.stderr).contains("REDIS_URL"));
    server.kill9();
    for task in [["ls"].as_slice(), &["show", "x"], &["run", "x", "--", "true"]] {
        let asked = std::time::Instant::now();
        let ended = support::command(&server).arg("--json").args(task).output().unwrap();
        let error = objects(&ended.stderr).pop().unwrap();
        assert_eq!((code(&ended), error["code"].as_i64()), (69, Some(69)), "{task:?}");
        assert_eq!(error["error"], "unavailable");
        assert!(asked.elapsed() < 10 * SECOND);
    }
}

#[test]
fn the_manual_has_examples_and_exit_codes() {
    let server = Server::start();
    let manual = text(&run(&server, &["--help"]).stdout);
    for section in ["EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "Usage:"] {
        assert!(manual.contains(section), "{section}");
    }
    for task in ["ls", "show", "watch", "release", "run", "acquire", "check"] {
        let help = run(&server, &[task, "--help"]);
        assert!(code(&help) == 0 && help.stdout.len() > 500, "{task}");
    }
}

#[test]
fn a_lock_is_taken_by_one_command_and_ended_by_another() {
    let server = Server::start();
    let taken = run(&server, &["acquire", "deploy", "--ttl", "20s", "--label", "shell"]);
    assert_eq!(code(&taken), 0, "{}", text(&taken.stderr));
    let token = text(&taken.stdout).trim().to_owned();
    assert_eq!(server.get("lock:deploy"), Some(token.clone()));
    assert!(server.pttl("lock:deploy").unwrap() <= 20_000);
    let busy = run(&server, &["acquire", "deploy", "--ttl", "20s", "--wait", "none"]);
    assert_eq!(code(&busy), 75);
    let digit = if token.starts_with("rl1.0") { "1" } else { "0" };
    let other = ["rl1.", digit, &token[5..]].concat();
    assert_eq!(code(&run(&server, &["release", "deploy", "--token", &other])), 1, "not its own");
    assert_eq!(code(&run(&server, &["release", "other", "--token", &token])), 1, "of another key");
    assert!(server.exists("lock:deploy"));
    assert_eq!(code(&run(&server, &["release", "deploy", "--token", &token])), 0);
    assert_eq!(code(&run(&server, &["release", "deploy", "--token", &token])), 1, "ended already");
    assert_eq!(code(&run(&server, &["release", "deploy", "--token", "x"])), 64);
    assert_eq!(code(&run(&server, &["release", "deploy"])), 64, "a reason or a token");
    let json = run(&server, &["acquire", "deploy", "--ttl", "20s", "--json"]);
    let token = objects(&json.stdout)[0]["token"].as_str().unwrap().to_owned();
    assert_eq!(code(&run(&server, &["release", "deploy", "--token", &token])), 0);
    server.assert_clean();
}

#[test]
fn a_stored_value_is_shown_when_it_is_asked_for() {
    let server = Server::start();
    let request = locks(&server).mutex("report").once(60 * SECOND).replay();
    let reply =
        request.blocking_call(|_| Ok::<_, redis_lock_core::LockError>("a\u{1b}b".to_owned()));
    assert_eq!(reply.unwrap().into_value(), "a\u{1b}b");
    let value = run(&server, &["show", "report", "--value"]);
    assert_eq!((code(&value), text(&value.stdout).as_str()), (0, "\"a\\u001bb\"\n"));
    let shown = text(&run(&server, &["show", "report"]).stdout);
    assert!(shown.contains("value  10 bytes") && !shown.contains("u001b"), "{shown}");
    let shown = &objects(&run(&server, &["show", "report", "--json"]).stdout)[0];
    assert_eq!(shown["done"]["value_bytes"], 10, "{shown}");
    let none = run(&server, &["show", "other", "--value"]);
    assert_eq!((code(&none), none.stdout.len()), (1, 0));
}
