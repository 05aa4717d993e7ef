//! The bytes that other versions have to understand, as they were when they were frozen. A change of the
//! file is a change of the protocol: docs/PROTOCOL.md says what clients must keep.

use std::fmt::Write;

use super::*;
use crate::domain::value::StoredValue;
use crate::store::redis::listen;
use crate::store::redis::test_direct::token;
use crate::store::{Acquire, Keep};

/// Written again with `GOLDEN=write`.
const FROZEN: &str = include_str!("golden.txt");

const CHANNEL: &str = "lock:~m:0123456789ab";

fn words(cmd: &Cmd) -> Vec<String> {
    let word = |arg: redis::Arg<&[u8]>| match arg {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    cmd.args_iter().map(word).collect()
}

fn keys(out: &mut String) {
    for (namespace, main) in [("lock", "lock:order:42"), ("", "a{b}"), ("lock", "lock:a}b")] {
        let names = Names::new(namespace, main);
        let side = [names.queue(), names.waiters(), names.limit(), names.fence(), names.value()];
        let of_token = [names.tombstone("TOKEN"), names.channel("0123456789ab")];
        let _ = writeln!(out, "{main}: {} {}", side.join(" "), of_token.join(" "));
    }
}

fn verbs() -> [(&'static str, Verb); 13] {
    let time = Some(Duration::from_secs(30));
    let token = token(1);
    let release = |keep, tombstone| Verb::Release {
        token: token.clone(),
        waited_for: true,
        keep,
        share: None,
        tombstone,
    };
    let keep = |time, value: Option<&str>| Keep {
        time,
        mark: "MARK".into(),
        value: value.map(StoredValue::new),
    };
    let queue = Some(Duration::from_secs(5));
    let acquire = Acquire { queue, fences: 1, ..Acquire::of(token.clone(), time) };
    [
        ("take", Verb::Take { token: token.clone(), ttl: time }),
        ("acquire", Verb::Acquire(acquire)),
        ("renew", Verb::Renew { token: token.clone(), ttl: time }),
        ("keep", Verb::Keep { token: token.clone(), time: Duration::from_secs(1) }),
        ("check", Verb::Check { token: token.clone() }),
        ("why", Verb::Why { token: token.clone() }),
        ("release", release(None, None)),
        ("release and keep", release(time.map(|time| keep(time, None)), None)),
        ("release with a tombstone", release(None, time)),
        ("look", Verb::Look),
        ("in use", Verb::InUse { asker: token.clone() }),
        ("complete", release(time.map(|time| keep(time, Some("TOKEN 7"))), None)),
        ("fetch", Verb::Fetch),
    ]
}

/// What is sent, but for the hashes of scripts.
fn sent(out: &mut String) {
    let context = Context { delete: Delete::DelIfEq, channel: &Channel::listened_at(CHANNEL) };
    for (kind_name, kind) in
        [("mutex", Kind::Mutex), ("read", Kind::Read), ("permit", Kind::Permit { limit: 2 })]
    {
        for (name, verb) in verbs() {
            let is_take = matches!(verb, Verb::Take { .. });
            if kind != Kind::Mutex && is_take {
                continue;
            }
            let names = Names::new("lock", "lock:a");
            let command = Command { names, kind, verb, timeout: Duration::from_secs(1) };
            let mut words = match (plain(&command, &context), call(&command, &context)) {
                (Some(cmd), _) => words(&cmd),
                (None, Some(call)) => words(&call.cmd()),
                // It does not exist for this kind.
                _ => continue,
            };
            if words[0] == "EVALSHA" {
                words[1] = "HASH".into();
            }
            let _ = writeln!(out, "{kind_name}, {name}: {}", words.join(" "));
        }
    }
}

fn messages(out: &mut String) {
    let token = "rl1.00000000000000000000000000000001.a.0.";
    let texts = [
        format!("g {token}"),
        format!("g {token}+"),
        "w lock:a".to_owned(),
        format!("r {token}"),
        format!("a {} {token} lock:a", token.len()),
        format!("u {token}"),
    ];
    for text in texts {
        let _ = writeln!(out, "message {text}: {:?}", listen::read(&text));
    }
}

#[test]
fn what_stands_on_servers_and_goes_over_the_wire_is_as_it_was_frozen() {
    let mut out = String::new();
    keys(&mut out);
    sent(&mut out);
    messages(&mut out);
    if std::env::var("GOLDEN").is_ok_and(|it| it == "write") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/encode/golden.txt");
        std::fs::write(path, &out).unwrap();
        return;
    }
    for (now, frozen) in out.lines().zip(FROZEN.lines()) {
        assert_eq!(now, frozen, "other versions may not understand it");
    }
    assert_eq!(out.lines().count(), FROZEN.lines().count());
}
