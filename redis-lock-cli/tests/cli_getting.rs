//! What `run`, `acquire` and `release` have in common: how long to wait, as what to lock, and what to
//! say when another holder has the lock.

mod support;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Program, Proxy, Server, eventually};

use support::{SECOND, code, locks, objects, run, text};

#[test]
fn flocks_options_mean_what_they_mean_there() {
    let server = Server::start();
    let guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    for refused in [
        ["-n"].as_slice(),
        &["--no-wait"],
        &["--nonblock"],
        &["-w", "0"],
        &["-w", "none"],
        &["-w", "0.1"],
        &["--wait", "100ms"],
    ] {
        for task in [["run"].as_slice(), &["acquire", "--ttl", "9s"]] {
            let command = if task == ["run"] { ["--", "true"].as_slice() } else { &[] };
            let line = [task, &["job"], refused, command].concat();
            let refused = run(&server, &line);
            assert_eq!(code(&refused), 75, "{line:?}: {}", text(&refused.stderr));
            assert!(text(&refused.stderr).contains("held by tester"), "{line:?}");
        }
    }
    let start = Instant::now();
    assert_eq!(code(&run(&server, &["run", "job", "-w", "1", "--", "true"])), 75);
    assert!(start.elapsed() >= SECOND);
    let both = ["run", "job", "-n", "-w", "1", "--", "true"];
    assert_eq!(code(&run(&server, &both)), 64);
    guard.blocking_release().unwrap();
    assert_eq!(code(&run(&server, &["run", "job", "-n", "--", "true"])), 0);
}

#[test]
fn a_lock_that_is_busy_has_the_code_and_the_silence_that_were_asked_for() {
    let server = Server::start();
    let _guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    let quiet = run(&server, &["run", "job", "-n", "-q", "-E", "0", "--", "echo", "ran"]);
    assert_eq!((code(&quiet), quiet.stdout.len(), quiet.stderr.len()), (0, 0, 0));
    let long = ["acquire", "job", "--ttl", "9s", "-n", "--conflict-exit-code", "17", "--quiet"];
    let quiet = run(&server, &long);
    assert_eq!((code(&quiet), quiet.stderr.len()), (17, 0));
    let told = run(&server, &["run", "job", "-n", "-E", "17", "--json", "--", "true"]);
    let error = &objects(&told.stderr)[0];
    assert_eq!((code(&told), &error["error"], &error["code"]), (17, &"busy".into(), &17.into()));
    server.kill9();
    let down = run(&server, &["run", "job", "-n", "-q", "-E", "0", "--", "true"]);
    assert_eq!(code(&down), 69, "only a busy lock is passed over");
    assert!(!down.stderr.is_empty());
}

#[test]
fn readers_share_and_permits_are_counted() {
    let server = Server::start();
    let take = |key, options: &[&str]| {
        let taken = run(&server, &[&["acquire", key, "--ttl", "20s", "-n"], options].concat());
        (code(&taken), text(&taken.stdout).trim().to_owned())
    };
    let (first, second) = (take("doc", &["--read"]), take("doc", &["--read"]));
    assert_eq!((first.0, second.0), (0, 0));
    assert_eq!(take("doc", &[]).0, 78, "a key is locked as one kind");
    for (_, token) in [first, second] {
        let end = ["release", "doc", "--read", "--token", &token];
        assert_eq!(code(&run(&server, &end)), 0);
    }
    let (first, second) = (take("pool", &["--permits", "2"]), take("pool", &["--permits", "2"]));
    assert_eq!((first.0, second.0, take("pool", &["--permits", "2"]).0), (0, 0, 75));
    let end = ["release", "pool", "--permits", "2", "--token", &first.1];
    assert_eq!(code(&run(&server, &end)), 0);
    let script = "test -z \"$REDIS_LOCK_FENCE\" && echo ran";
    for kind in [["--permits", "2"].as_slice(), &["--read"]] {
        let key = if kind.len() == 2 { "pool" } else { "doc" };
        let line = [&["run", key, "-n"], kind, &["--", "sh", "-c", script]].concat();
        let ran = run(&server, &line);
        assert_eq!((code(&ran), text(&ran.stdout).as_str()), (0, "ran\n"), "{line:?}");
    }
    assert_eq!(take("doc", &["--read", "--permits", "2"]).0, 64);
    let end = ["release", "pool", "--permits", "2", "--token", &second.1];
    assert_eq!(code(&run(&server, &end)), 0);
    server.assert_clean();
}

#[test]
fn the_command_of_a_permit_has_its_number() {
    let server = Server::start();
    let gpu = ["run", "gpu", "--permits", "2", "--slot", "-n", "--"];
    let script = "echo $REDIS_LOCK_SLOT; exec sleep 60";
    let mut first = support::Running::start(&server, &[&gpu[..], &["sh", "-c", script]].concat());
    assert_eq!(first.line(), "0");
    let shown = text(&run(&server, &["show", "gpu"]).stdout);
    assert!(shown.contains("    slot   0\n"), "{shown}");
    let listed = text(&run(&server, &["ls"]).stdout);
    assert!(listed.contains(" (slot 0)"), "{listed}");
    let json = objects(&run(&server, &["show", "gpu", "--json"]).stdout);
    assert_eq!(json[0]["holders"][0]["slot"], 0);
    let second = run(&server, &[&gpu[..], &["sh", "-c", "echo $REDIS_LOCK_SLOT"]].concat());
    assert_eq!(text(&second.stdout), "1\n");
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, 143);
    assert_eq!(code(&run(&server, &["run", "gpu", "--slot", "--", "true"])), 64);
}

#[test]
fn a_label_stands_alone() {
    let server = Server::start();
    let label = || locks(&server).blocking_status("job").unwrap().holders[0].label.clone();
    let taken = run(&server, &["acquire", "job", "--ttl", "20s", "--label", "me 100 %"]);
    assert_eq!(label().as_deref(), Some("me 100 %"));
    let token = text(&taken.stdout).trim().to_owned();
    assert!(!token.contains(' '), "a shell would split it: {token}");
    assert_eq!(server.get("lock:job").as_deref(), Some(token.as_str()));
    run(&server, &["release", "job", "--token", &token]);
    let line = ["run", "job", "--label", "cron", "--", "sh", "-c", "echo up; exec sleep 60"];
    let mut running = support::Running::start(&server, &line);
    assert_eq!(running.line(), "up");
    assert_eq!(label().as_deref(), Some("cron"));
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 143);
}

#[test]
fn fencing_tokens_are_asked_for_and_left_out() {
    let server = Server::start();
    let fence = || {
        let taken = run(&server, &["acquire", "job", "--ttl", "20s", "--fence"]);
        let line = text(&taken.stdout);
        let (token, fence) = line.trim().rsplit_once(' ').unwrap();
        assert_eq!(code(&run(&server, &["release", "job", "--token", token])), 0);
        fence.parse::<u64>().unwrap()
    };
    let (first, second) = (fence(), fence());
    assert!(first < second);
    let json = run(&server, &["acquire", "job", "--ttl", "20s", "--fence", "--json"]);
    let taken = &objects(&json.stdout)[0];
    assert!(taken["fence"].as_u64().unwrap() > second);
    run(&server, &["release", "job", "--token", taken["token"].as_str().unwrap()]);
    let script = "test -z \"$REDIS_LOCK_FENCE\" && echo none";
    let line = ["run", "other", "--no-fence", "--", "sh", "-c", script];
    assert_eq!(text(&run(&server, &line).stdout), "none\n");
    let counters = || server.keys().into_iter().filter(|key| key.contains("other")).count();
    eventually(Duration::from_secs(5), "no counter is kept", || counters() == 0);
}

#[test]
fn segments_make_the_key_that_the_attribute_makes() {
    let server = Server::start();
    let key = "user:J.%20Doe:a%3Ab";
    let _guard = locks(&server).mutex(key).blocking_acquire().unwrap();
    let parts = ["user", "--segment", "J. Doe", "--segments", "a:b"];
    let shown = run(&server, &[&["show", "--json"], parts.as_slice()].concat());
    assert_eq!((code(&shown), &objects(&shown.stdout)[0]["key"]), (0, &key.into()));
    let busy = run(&server, &[&["run", "-n"], parts.as_slice(), &["--", "true"]].concat());
    assert_eq!(code(&busy), 75);
    let busy = run(&server, &[&["acquire", "-n", "--ttl", "9s"], parts.as_slice()].concat());
    assert_eq!(code(&busy), 75);
    let line = [&["release", "--yes", "--reason", "x"], parts.as_slice()].concat();
    assert_eq!(code(&run(&server, &line)), 0);
}

#[test]
fn a_signal_ends_acquire_and_leaves_no_lock() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut command = support::command(&server);
    command.env("REDIS_URL", proxy.url()).args(["acquire", "job", "--ttl", "1m"]);
    proxy.delay_down(Duration::from_millis(300));
    let mut program = Program::spawn(command);
    // The server has granted it, and the answer is on its way.
    eventually(20 * SECOND, "it is granted", || server.exists("lock:job"));
    program.signal(Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(128 + 15));
    server.assert_clean();
}

#[test]
fn acquire_takes_nothing_when_the_token_cannot_be_printed() {
    let server = Server::start();
    let acquire = |output: &str| {
        let program = env!("CARGO_BIN_EXE_redis-lock");
        let mut command = support::command_of("sh", &server);
        command.args(["-c", &format!("exec {program} acquire job --ttl 1m -n {output}")]);
        Program::spawn(command).output("")
    };
    let closed = acquire(">&-");
    assert_eq!(code(&closed), 74, "{}", text(&closed.stderr));
    assert!(text(&closed.stderr).contains("standard output is closed"), "{closed:?}");
    assert!(!server.exists("lock:job"));
    let full = acquire("> /dev/full");
    assert_eq!(code(&full), 74, "{}", text(&full.stderr));
    server.assert_clean();
    assert_eq!(code(&acquire("> /dev/null")), 0, "the token was dropped on purpose");
    assert!(server.exists("lock:job"));
}

#[test]
fn an_outage_is_waited_for_as_long_as_it_may_last() {
    let server = Server::start();
    server.kill9();
    let start = Instant::now();
    let job = ["run", "job", "--outage", "200ms", "--", "true"];
    assert_eq!(code(&run(&server, &job)), 69);
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    let job = ["run", "job", "--outage", "1m", "--", "echo", "ran"];
    let mut waiting = support::Running::start(&server, &job);
    server.restart();
    assert_eq!(waiting.line(), "ran");
    assert_eq!(waiting.end().0, 0);
}

#[test]
fn the_server_keeps_the_lock_for_the_margin() {
    let server = Server::start();
    let job = ["run", "job", "--ttl", "10s", "--margin", "1m", "--", "sh", "-c", "echo up; read _"];
    let mut command = support::command(&server);
    command.args(job).stdin(std::process::Stdio::piped());
    let mut running = support::Running::spawn(command);
    assert_eq!(running.line(), "up");
    assert!(
        server.pttl("lock:job").is_some_and(|left| left > 20_000),
        "{:?}",
        server.pttl("lock:job")
    );
    drop(running.program.stdin());
    assert_eq!(running.end().0, 1, "`read` found the end of its input");
    server.assert_clean();
}

#[test]
fn command_lines_that_make_no_sense_are_64_before_anything_is_locked() {
    let server = Server::start();
    let wrong = [
        ["job", "-n", "--queue=1"],
        ["job", "-w0", "--queue=1"],
        ["job", "-q", "--queue=0"],
        ["job", "--newest", "--queue=1"],
        ["job", "--newest", "-wnone"],
        ["job", "--segment=", "--segment=eu"],
        ["report:", "-q", "-n"],
    ];
    for words in wrong {
        let refused = run(&server, &[&["run"], &words[..], &["--", "echo", "ran"]].concat());
        assert_eq!((code(&refused), refused.stdout.len()), (64, 0), "{words:?}");
    }
    let empty = run(&server, &["acquire", "report:", "--ttl", "1m"]);
    assert!(text(&empty.stderr).contains("is the variable after it empty?"), "{empty:?}");
    server.assert_clean();
}

#[test]
fn a_full_queue_is_reported_at_once() {
    let server = Server::start();
    let _guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    let waiting = support::Running::start(&server, &["run", "job", "--queue", "1", "--", "true"]);
    let waits = || !locks(&server).blocking_status("job").unwrap().waiters.is_empty();
    eventually(20 * SECOND, "it waits", waits);
    let full = run(&server, &["run", "job", "--queue", "1", "-E", "9", "--json", "--", "true"]);
    assert_eq!(code(&full), 9, "{}", text(&full.stderr));
    assert_eq!(objects(&full.stderr)[0]["error"], "crowded");
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.end().0, 128 + 15);
}
