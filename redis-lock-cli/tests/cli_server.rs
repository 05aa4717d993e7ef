//! How the program reaches servers, and what it says of them.

mod support;

use std::fs;

use testbed::{Certificates, Sentinel, Server, ServerBinary};

use support::{bare_command, code, command, locks, objects, run, text};

#[test]
fn check_says_what_an_operator_should_know() {
    let server = Server::builder().aof().start();
    let well = run(&server, &["check"]);
    let said = text(&well.stdout);
    assert_eq!(code(&well), 0, "{said}{}", text(&well.stderr));
    assert!(said.contains("acquired and released") && !said.contains("warning"), "{said}");
    server.run::<()>("SET lock:stray x");
    server.run::<()>("CONFIG SET maxmemory-policy allkeys-lru");
    server.run::<()>("CONFIG SET appendonly no");
    let ill = run(&server, &["check", "--strict", "--replicas", "0"]);
    let said = text(&ill.stdout);
    assert_eq!(code(&ill), 1, "{said}");
    let probed = run(&server, &["check"]);
    assert_eq!(code(&probed), 0, "warnings alone do not fail a probe: {}", text(&probed.stderr));
    assert_eq!(text(&probed.stdout).matches("warning").count(), 3, "{}", text(&probed.stdout));
    for warning in ["appendonly", "allkeys-lru", "`stray`"] {
        assert!(said.contains(warning), "{warning}: {said}");
    }
    let report = &objects(&run(&server, &["check", "--json"]).stdout)[0];
    assert_eq!((&report["ok"], &report["locks"]), (&false.into(), &1.into()));
    assert_eq!(report["warnings"].as_array().unwrap().len(), 3, "{report}");
    let alone = run(&server, &["check", "--replicas", "1"]);
    assert_eq!(code(&alone), 69, "no lock can be acquired: {}", text(&alone.stdout));
    server.kill9();
    assert_eq!(code(&run(&server, &["check"])), 69);
}

#[test]
fn check_notices_missing_rights_and_a_short_ttl() {
    let server = Server::builder().user("app on >hush ~* &* +@all -eval -evalsha").start();
    let mut mute = bare_command();
    mute.env("REDIS_URL", format!("redis://app:hush@127.0.0.1:{}", server.port()))
        .args(["check", "--strict"]);
    let mute = mute.output().unwrap();
    assert_eq!(code(&mute), 1);
    assert!(text(&mute.stdout).contains("scripts are denied"), "{}", text(&mute.stdout));
    let group = Sentinel::start();
    let hosts: Vec<_> =
        group.sentinels().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis-sentinel://{}/{}", hosts.join(","), group.name());
    let mut short = bare_command();
    let short = short.args(["check", "--strict", "--ttl", "1s", "--url", &url]).output().unwrap();
    assert_eq!(code(&short), 1);
    assert!(text(&short.stdout).contains("shorter than a fail"), "{}", text(&short.stdout));
}

#[test]
fn an_empty_url_is_none_and_a_namespace_without_locks_is_named() {
    let server = Server::start();
    let mut unset = bare_command();
    let unset = unset.env("REDIS_URL", "").arg("ls").output().unwrap();
    assert_eq!(code(&unset), 78);
    assert!(text(&unset.stderr).contains("no server was named"), "{}", text(&unset.stderr));
    let none = run(&server, &["ls"]);
    assert_eq!((code(&none), none.stdout.len()), (0, 0));
    assert_eq!(text(&none.stderr), "redis-lock: no locks in namespace `lock`\n");
    let none = run(&server, &["ls", "a*", "--namespace", "other"]);
    assert_eq!(text(&none.stderr), "redis-lock: no locks that match `a*` in namespace `other`\n");
    let _guard = locks(&server).mutex("job").blocking_acquire().unwrap();
    assert_eq!(text(&run(&server, &["ls"]).stderr), "");
}

#[test]
fn certificates_are_taken_from_files() {
    let Some(made) = Certificates::new() else {
        return testbed::report_skipped("there is no openssl");
    };
    let each = [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten();
    let Some(binary) = each.into_iter().find(ServerBinary::speaks_tls) else {
        return testbed::report_skipped("no server here speaks TLS");
    };
    let server = Server::builder().binary(binary).tls(&made).start();
    let show = |options: &[&std::path::Path], names: &[&str]| {
        let mut command = bare_command();
        command.env("REDIS_URL", server.tls_url()).args(["show", "job"]);
        for (name, file) in names.iter().zip(options) {
            command.arg(name).arg(file);
        }
        command.output().unwrap()
    };
    let (authority, certificate, key) =
        (made.authority_file(), made.client_file(), made.client_key_file());
    let trusting = show(&[&authority], &["--cacert"]);
    assert_eq!(code(&trusting), 1, "it is free: {}", text(&trusting.stderr));
    let shown = show(&[&authority, &certificate, &key], &["--cacert", "--tls-cert", "--tls-key"]);
    assert_eq!(code(&shown), 1, "{}", text(&shown.stderr));
    assert_eq!(code(&show(&[], &[])), 69, "no authority has signed for it");
    assert_eq!(code(&show(&[&certificate], &["--tls-cert"])), 64, "its key is missing");
    let nowhere = show(&["/nowhere/ca.pem".as_ref()], &["--cacert"]);
    assert_eq!(code(&nowhere), 74);
    assert!(text(&nowhere.stderr).contains("/nowhere/ca.pem"));
}

#[test]
fn sentinels_have_credentials_of_their_own() {
    let group = Sentinel::builder().sentinels(1).start();
    let sentinel = group.sentinels()[0].server();
    sentinel.run::<()>("ACL SETUSER watcher on >hush ~* &* +@all");
    sentinel.run::<()>("ACL SETUSER default off");
    let url = format!("redis-sentinel://127.0.0.1:{}/{}", sentinel.port(), group.name());
    let file = std::env::temp_dir().join(format!("redis-lock-test-{}", std::process::id()));
    fs::write(&file, "hush\n").unwrap();
    let mut with = bare_command();
    with.args(["show", "job", "--url", &url, "--sentinel-user", "watcher"]);
    let with = with.arg("--sentinel-password-file").arg(&file).output().unwrap();
    let without = bare_command().args(["show", "job", "--url", &url]).output().unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(code(&with), 1, "it is free: {}", text(&with.stderr));
    assert_eq!(code(&without), 69);
}

#[test]
fn what_a_server_says_is_escaped() {
    let server = Server::start();
    let mut odd = command(&server);
    let odd = odd.args(["show", "a\u{1b}[2Jb", "--url", "redis://\u{1b}[2J"]).output().unwrap();
    assert_ne!(code(&odd), 0);
    server.run::<()>("SET lock:job x PX 60000");
    let reason = ["release", "job", "--reason", "\u{1b}[31mred\u{202e}", "--yes"];
    let shown = run(&server, &["ls", "a\u{1b}[2Jb"]);
    for output in [odd, shown, run(&server, &reason)] {
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains('\u{1b}') && !all.contains('\u{202e}'), "{all:?}");
    }
}

#[test]
fn help_has_headings_and_plain_words() {
    let server = Server::start();
    for task in ["run", "acquire", "show", "check"] {
        let help = text(&run(&server, &[task, "--help"]).stdout);
        assert!(help.contains("\nServer:\n") && help.contains("\nOutput:\n"), "{task}: {help}");
    }
    let help = text(&run(&server, &["run", "--help"]).stdout);
    let headings = ["\nWaiting:\n", "\nLock:\n", "\nJob:\n", "\nServer:\n"].map(|it| help.find(it));
    assert!(headings.is_sorted() && headings[0].is_some(), "{help}");
    let manual = text(&run(&server, &["--help"]).stdout);
    let order =
        ["  run ", "  ls ", "  check ", "EXAMPLES", "EXIT STATUS"].map(|it| manual.find(it));
    assert!(order.is_sorted() && order[0].is_some(), "{manual}");
    assert!(manual.contains("redis-quorum://") && manual.contains("date -u"), "{manual}");
    assert!(manual.contains("not held") && manual.contains("usage error"), "{manual}");
}

#[test]
fn an_unknown_option_is_not_suggested_as_the_command() {
    let server = Server::start();
    let unknown = run(&server, &["run", "job", "--outrage", "1m", "--", "true"]);
    let said = text(&unknown.stderr);
    assert_eq!(code(&unknown), 64, "{said}");
    assert!(said.contains("--outage") && !said.contains("-- --"), "{said}");
    let behind = run(&server, &["run", "job", "--", "--outage", "1m", "true"]);
    let said = text(&behind.stderr);
    assert_eq!(code(&behind), 127, "{said}");
    assert!(said.contains("options of redis-lock stand before it"), "{said}");
    let unknown = text(&run(&server, &["run", "job", "--xyz", "--", "true"]).stderr);
    assert!(
        unknown.contains("unexpected argument '--xyz'") && !unknown.contains("-- --"),
        "{unknown}"
    );
}

#[test]
fn rejoin_is_a_quorum_s_and_no_other_server_s() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let nodes: Vec<_> = servers.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis-quorum://{}", nodes.join(","));
    let job = ["run", "job", "--url", &url, "-n", "--rejoin"];
    // The nodes have just been started, so they vote only where they may vote at once.
    let ran = run(&servers[0], &[job.as_slice(), &["0s", "--", "true"]].concat());
    assert_eq!(code(&ran), 0, "{}", text(&ran.stderr));
    let young = run(&servers[0], &[job.as_slice(), &["10m", "--", "true"]].concat());
    assert_eq!(code(&young), 69, "{}", text(&young.stderr));
    // From now on the longer time counts for every client.
    let beside = run(&servers[0], &[job.as_slice(), &["0s", "--", "true"]].concat());
    assert_eq!(code(&beside), 69, "{}", text(&beside.stderr));
    let alone = run(&servers[0], &["run", "job", "--rejoin", "10m", "--", "true"]);
    assert_eq!(code(&alone), 78, "{}", text(&alone.stderr));
}
