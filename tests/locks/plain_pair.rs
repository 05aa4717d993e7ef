//! What a pair of acquisition and release sends when no option asks for more: the same bytes in every version, so
//! that processes of several versions share a lock, and a pair costs what it did.

use redis_locks::{LockRequest, Locks};
use testbed::{Flavor, Server, ServerBinary, eventually, holds_for};

use crate::arena::{PATIENCE, ms, take};

/// The commands that clients have sent, with `TOKEN` for the token and `SHA` for the digest of a script.
fn sent(monitor: &testbed::Monitor, token: &str) -> Vec<String> {
    let lines = monitor.lines().into_iter().filter_map(|line| {
        let (_, rest) = line.split_once('[')?;
        let (client, command) = rest.split_once("] ")?;
        // Each manager subscribes once, whenever that is.
        let counts = !client.ends_with("lua") && !command.contains("SUBSCRIBE");
        counts.then(|| command.replace(token, "TOKEN"))
    });
    let without_digest = |line: String| match line.strip_prefix("\"EVALSHA\" \"") {
        Some(rest) => format!("\"EVALSHA\" \"SHA{}", rest.get(40..).unwrap_or_default()),
        None => line,
    };
    // A connection for messages may open meanwhile. Its holder then looks whether it missed a newer call.
    let of_messages = [r#""CLIENT""#, r#""SUBSCRIBE""#, r#""ZRANGE" "lock:{lock:k}:~l""#];
    let is_own = |line: &String| !of_messages.iter().any(|it| line.starts_with(it));
    lines.map(without_digest).filter(is_own).collect()
}

/// What a pair sends after a first one, which has loaded scripts.
fn pair(server: &Server, request: impl Fn(&Locks) -> LockRequest) -> Vec<String> {
    let locks = Locks::open(server.url()).unwrap();
    take(request(&locks)).blocking_release().unwrap();
    let monitor = server.monitor();
    let guard = take(request(&locks));
    let token = guard.token().to_string();
    guard.blocking_release().unwrap();
    eventually(PATIENCE, "both commands are recorded", || sent(&monitor, &token).len() >= 2);
    // What follows the release by itself would be recorded by now as well.
    let seen = sent(&monitor, &token);
    server.run::<()>("SET end 1");
    holds_for(ms(100), "nothing follows", || sent(&monitor, &token) == seen);
    seen
}

fn servers() -> Vec<(Server, &'static str)> {
    let by_script = r#""EVALSHA" "SHA" "1" "lock:k" "TOKEN""#;
    let by_command = r#""DELIFEQ" "lock:k" "TOKEN""#;
    let others = ServerBinary::valkey(9).map(|valkey| Server::builder().binary(valkey).start());
    let servers = [Some(Server::start()), others].into_iter().flatten();
    let release = |server: &Server| match (server.binary().flavor(), server.binary().version()) {
        (Flavor::Valkey, (9.., ..)) => by_command,
        _ => by_script,
    };
    servers.map(|server| (release(&server), server)).map(|(release, it)| (it, release)).collect()
}

#[test]
fn a_pair_without_options_sends_the_two_commands_of_the_protocol() {
    for (server, release) in servers() {
        let take = r#""SET" "lock:k" "TOKEN" "NX" "PX" "30000""#;
        assert_eq!(pair(&server, |locks| locks.mutex("k")), [take, release]);
    }
}

/// What the options of a second call send where there is none: `queue` and `newest` ask by the script.
#[test]
fn a_pair_with_an_option_for_a_second_call_sends_two_commands_as_well() {
    for (server, _) in servers() {
        for option in [|it: LockRequest| it.queue(1), |it: LockRequest| it.newest()] {
            let sent = pair(&server, |locks| option(locks.mutex("k")));
            assert_eq!(sent.len(), 2, "{sent:?}");
            assert!(sent[0].starts_with(r#""EVALSHA" "SHA""#), "{sent:?}");
        }
    }
}
