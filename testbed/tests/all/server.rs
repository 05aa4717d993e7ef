//! The servers of the scenery do what tests ask of them.

use std::time::{Duration, Instant};

use testbed::{Child, ChildIo, ClockShim, Server, ServerBinary, eventually};

#[test]
fn answers_and_counts() {
    let server = Server::start();
    server.run::<()>("SET data 1 PX 60000");
    assert_eq!(server.get("data").as_deref(), Some("1"));
    assert_eq!(server.command_counts()["set"], 1);
    server.reset_counts();
    assert!(!server.command_counts().contains_key("set"));
    let mut client = server.client().get_connection().unwrap();
    assert_eq!(redis::cmd("GET").arg("data").query::<i32>(&mut client), Ok(1));
    let unix = redis::Client::open(server.unix_url()).unwrap();
    assert_eq!(
        redis::cmd("GET").arg("data").query::<i32>(&mut unix.get_connection().unwrap()),
        Ok(1)
    );
}

#[test]
fn each_has_its_own_data() {
    let (one, other) = (Server::start(), Server::start());
    one.run::<()>("SET data 1");
    assert!(one.exists("data"));
    assert!(!other.exists("data"));
}

#[test]
fn forgets_at_a_crash_without_persistence() {
    let server = Server::start();
    let (pid, port) = (server.pid(), server.port());
    server.run::<()>("SET data 1 PX 60000");
    server.restart();
    assert!(!server.exists("data"));
    assert_ne!(server.pid(), pid);
    assert_eq!(server.port(), port);
}

#[test]
fn keeps_its_data_with_an_append_only_file_until_that_is_torn() {
    let server = Server::builder().aof().start();
    server.run::<()>("SET old 1 PX 60000");
    server.run::<()>("SET young 1 PX 60000");
    server.kill9();
    server.restart();
    assert!(server.exists("old") && server.exists("young"));
    server.kill9();
    server.truncate_aof(20);
    server.restart();
    assert!(server.exists("old") && !server.exists("young"));
}

#[test]
fn frozen_it_is_silent_and_thawed_it_catches_up() {
    let server = Server::start();
    let mut client = server.client().get_connection().unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    server.freeze();
    let start = Instant::now();
    assert!(redis::cmd("SET").arg("late").arg(1).query::<()>(&mut client).is_err());
    assert!(start.elapsed() >= Duration::from_millis(200));
    server.thaw();
    eventually(Duration::from_secs(5), "the command is executed late", || server.exists("late"));
}

#[test]
fn the_scenery_gets_in_when_the_default_user_cannot() {
    let server = Server::start();
    server.run::<()>("CONFIG SET requirepass secret");
    server.run::<()>("ACL SETUSER default off");
    let refused = server
        .client()
        .get_connection()
        .and_then(|mut connection| redis::cmd("PING").query::<()>(&mut connection));
    assert!(refused.is_err());
    assert_eq!(server.run::<String>("PING"), "PONG");
}

#[test]
fn a_monitor_sees_clients_and_scripts_but_not_the_scenery() {
    let server = Server::start();
    let monitor = server.monitor();
    let mut client = server.client().get_connection().unwrap();
    let script = "return redis.call('SET', KEYS[1], '1', 'PX', 60000)";
    redis::cmd("EVAL").arg(script).arg(1).arg("theirs").query::<()>(&mut client).unwrap();
    server.run::<()>("SET ours 1 PX 60000");
    eventually(Duration::from_secs(5), "the script's SET is seen", || {
        monitor.count("\"SET\" \"theirs\"") == 1
    });
    assert_eq!(monitor.count("ours"), 0);
}

#[test]
#[should_panic(expected = "eternal: without a ttl")]
fn assert_clean_names_what_would_stay_for_ever() {
    let server = Server::start();
    server.run::<()>("SET eternal 1");
    server.assert_clean();
}

#[test]
#[should_panic(expected = "lock:job: a lock or its queue")]
fn assert_clean_names_a_lock_that_was_left() {
    let server = Server::start();
    server.run::<()>("SET lock:job token PX 60000");
    server.assert_clean();
}

#[test]
#[should_panic(expected = "lock:{lock:job}:~q: a lock or its queue")]
fn assert_clean_names_a_waiter_that_was_left() {
    let server = Server::start();
    server.run::<()>("ZADD lock:{lock:job}:~q 1 token");
    server.run::<()>("PEXPIRE lock:{lock:job}:~q 60000");
    server.run::<()>("SET lock:{lock:job}:~f 1 PX 60000");
    server.assert_clean();
}

#[test]
fn assert_clean_waits_for_the_last_release() {
    let server = Server::start();
    server.run::<()>("SET lock:job token PX 300");
    server.assert_clean();
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn the_clock_follows_the_offset() {
    let Some(clock) = ClockShim::new() else { testbed::skip!("no C compiler for the clock shim") };
    let server = Server::builder().clock(&clock).start();
    let seconds = || server.run::<(i64, i64)>("TIME").0;
    let start = seconds();
    clock.set(60.0);
    assert!((60..65).contains(&(seconds() - start)));
    clock.set(-3600.0);
    assert!((-3600..-3590).contains(&(seconds() - start)));
    clock.set(0.0);
    server.run::<()>("SET lock 1 PX 30000");
    clock.set(60.0);
    eventually(Duration::from_secs(5), "the key has expired", || !server.exists("lock"));
}

#[test]
fn a_valkey_can_be_had() {
    let Some(valkey) = ServerBinary::valkey(9) else { testbed::skip!("no Valkey 9 to be had") };
    let server = Server::builder().binary(valkey).start();
    server.run::<()>("SET lock token PX 60000");
    assert_eq!(server.run::<i64>("DELIFEQ lock token"), 1);
}

/// Spawns a server, and dies without a chance to clean up.
pub(crate) fn abandon(io: &mut ChildIo) {
    let server = Server::start();
    io.say(&format!("server {} {}", server.pid(), server.dir().display()));
    io.hear();
}

#[test]
fn no_server_outlives_its_test_process() {
    let mut child = Child::spawn("abandon", &[]);
    let said = child.expect("server");
    let (pid, dir) = said.split_once(' ').unwrap();
    assert!(is_alive(pid) && std::path::Path::new(dir).exists());
    child.kill9();
    eventually(Duration::from_secs(5), "the server is gone", || !is_alive(pid));
    eventually(Duration::from_secs(5), "so are its files", || !std::path::Path::new(dir).exists());
}

/// The server is no child of ours once its parent is dead: only its effects can be asked for.
fn is_alive(pid: &str) -> bool {
    std::process::Command::new("kill")
        .args(["-0", pid])
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}
