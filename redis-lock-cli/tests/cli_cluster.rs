//! The program on a cluster of several nodes.

mod support;

use std::process::Output;

use redis_lock_core::{LockState, Locks};
use testbed::{Cluster, PATIENCE, Program, eventually};

use support::{code, objects, text};

fn run(url: &str, arguments: &[&str]) -> Output {
    let mut command = support::bare_command();
    command.args(arguments).args(["--url", url]);
    Program::spawn(command).output("")
}

#[test]
fn every_command_reaches_the_node_that_has_the_key() {
    let cluster = Cluster::builder().replicas(0).start();
    let url = cluster.urls().join(",").replace("redis://", "");
    let url = format!("redis-cluster://{url}");
    let locks = Locks::builder().url(&url).label("tester").open().unwrap();
    let wire = |name: &str| format!("lock:{name}");
    let primaries = cluster.primaries();
    let keys: Vec<_> = primaries.iter().map(|node| cluster.name_at(node, "job", wire)).collect();
    let guards: Vec<_> =
        keys.iter().map(|key| locks.mutex(key).blocking_acquire().unwrap()).collect();

    let listed = run(&url, &["ls", "job*", "--json"]);
    assert_eq!(code(&listed), 0, "{}", text(&listed.stderr));
    let mut found: Vec<_> =
        objects(&listed.stdout).iter().map(|it| it["key"].as_str().unwrap().to_owned()).collect();
    found.sort_unstable();
    let mut wanted = keys.clone();
    wanted.sort_unstable();
    assert_eq!(found, wanted);

    for (key, guard) in keys.iter().zip(&guards) {
        let shown = run(&url, &["show", key, "--json"]);
        assert_eq!(code(&shown), 0, "{}", text(&shown.stderr));
        let status = &objects(&shown.stdout)[0];
        assert_eq!(status["server"]["topology"], "cluster");
        assert_eq!(status["holders"][0]["label"], "tester");
        let busy = run_script(&url, key);
        assert_eq!(code(&busy), 75, "{}", text(&busy.stderr));
        let released = run(&url, &["release", key, "--yes", "--reason", "a test"]);
        assert_eq!(code(&released), 0, "{}", text(&released.stderr));
        eventually(PATIENCE, "the holder learns of its loss", || guard.state() == LockState::Lost);
        let done = run_script(&url, key);
        assert_eq!((code(&done), text(&done.stdout)), (0, "inside\n".to_owned()));
        let acquired = run(&url, &["acquire", key, "--wait", "none", "--ttl", "1m"]);
        assert_eq!(code(&acquired), 0, "{}", text(&acquired.stderr));
        let token = text(&acquired.stdout);
        let released = run(&url, &["release", key, "--token", token.trim()]);
        assert_eq!(code(&released), 0, "{}", text(&released.stderr));
    }
    drop(guards);
    cluster.assert_clean();
}

/// Runs a program under the lock, if that is free.
fn run_script(url: &str, key: &str) -> Output {
    let mut command = support::bare_command();
    command.args(["run", "--url", url, "--wait", "none", key, "--", "echo", "inside"]);
    Program::spawn(command).output("")
}
