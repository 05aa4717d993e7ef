//! What is sent for each command, without a server.

use redis::Arg;

use super::*;
use crate::store::redis::test_direct::{command, token};
use crate::store::{Acquire, Keep};

const CHANNEL: &str = "lock:~m:0123456789ab";

fn words(cmd: &Cmd) -> String {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    cmd.args_iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The plain command of a verb.
fn sent(kind: Kind, verb: Verb) -> Option<String> {
    let context = Context { delete: Delete::DelIfEq, channel: &Channel::listened_at(CHANNEL) };
    plain(&command(kind, verb), &context).as_ref().map(words)
}

/// The keys and arguments of a script, where `channel` is subscribed.
fn script(kind: Kind, verb: Verb, channel: &str) -> String {
    let context = Context { delete: Delete::DelIfEq, channel: &Channel::listened_at(channel) };
    let cmd = call(&command(kind, verb), &context).unwrap().cmd();
    words(&cmd).split_whitespace().skip(3).collect::<Vec<_>>().join(" ")
}

fn release(waited_for: bool, keep: Option<Duration>, tombstone: Option<Duration>) -> Verb {
    let keep = keep.map(|time| Keep { time, mark: "m".into(), value: None });
    Verb::Release { token: "t".into(), waited_for, keep, share: None, tombstone }
}

#[test]
fn a_mutex_that_nobody_waits_for_needs_no_script() {
    let second = Some(Duration::from_secs(1));
    let take = |ttl| Verb::Take { token: "t".into(), ttl };
    assert_eq!(sent(Kind::Mutex, take(None)).unwrap(), "SET lock:a t NX");
    assert_eq!(sent(Kind::Mutex, take(second)).unwrap(), "SET lock:a t NX PX 1000");
    assert_eq!(sent(Kind::Mutex, release(false, None, None)).unwrap(), "DELIFEQ lock:a t");
    for by_script in
        [release(true, None, None), release(false, second, None), release(false, None, second)]
    {
        assert_eq!(sent(Kind::Mutex, by_script), None);
    }
    assert_eq!(sent(Kind::Write, release(false, None, None)), None);
}

#[test]
fn what_is_no_business_of_a_lock_needs_no_script() {
    assert_eq!(sent(Kind::Mutex, Verb::Ping).unwrap(), "PING");
    assert_eq!(sent(Kind::Mutex, Verb::Probe).unwrap(), "SET lock:{lock:a}:~x:ping - XX PX 1");
    let scan = sent(Kind::Mutex, Verb::Scan { cursor: 7 });
    assert_eq!(scan.unwrap(), "SCAN 7 MATCH lock:a COUNT 500");
    let asker = Token::fresh("0123456789cd", "");
    let in_use = sent(Kind::Mutex, Verb::InUse { asker: asker.wire().clone() });
    assert_eq!(in_use.unwrap(), format!("PUBLISH lock:~m:0123456789cd u {}", asker.wire()));
    let why = sent(Kind::Mutex, Verb::Why { token: "t".into() });
    assert_eq!(why.unwrap(), format!("GET {}", Names::new("lock", "lock:a").tombstone("t")));
}

#[test]
fn the_channel_of_another_manager_is_like_our_own() {
    let token = Token::fresh("0123456789cd", "");
    let force =
        || Verb::Force { tokens: vec![token.clone()], foreign: None, because: "why".into() };
    for (ours, theirs) in [
        (CHANNEL, "lock:~m:0123456789cd"),
        ("lock:{7}~m:0123456789ab", "lock:{7}~m:0123456789cd"),
        ("-", "lock:~m:0123456789cd"),
    ] {
        let sent = script(Kind::Mutex, force(), ours);
        assert!(sent.ends_with(&format!(" {theirs}")), "{sent}");
    }
}

#[test]
fn scripts_get_the_ttl_and_how_it_is_meant() {
    for kind in [Kind::Mutex, Kind::Read, Kind::All { ordered: false }] {
        let ends = |verb, with: &str| {
            let sent = script(kind, verb, CHANNEL);
            assert!(sent.ends_with(&format!(" t {with}")), "{kind:?}: {sent}");
        };
        let second = Duration::from_secs(1);
        ends(Verb::Renew { token: "t".into(), ttl: Some(second) }, "1000 lengthen");
        ends(Verb::Renew { token: "t".into(), ttl: None }, "0 look");
        ends(Verb::Keep { token: "t".into(), time: second }, "1000 set");
        ends(Verb::Check { token: "t".into() }, "0 look");
    }
}

#[test]
fn scripts_get_what_an_acquisition_asks_for() {
    let millis = Duration::from_millis;
    let terms = |fair| {
        let asked = Acquire::of(token(1), Some(millis(900)));
        let queue = Some(millis(5_000));
        Verb::Acquire(Acquire { queue, fair, fences: 32, repair_orphan: Some(millis(7)), ..asked })
    };
    for (fair, flag) in [(true, 1), (false, 0)] {
        let expected = format!(" {} 900 5000 {CHANNEL} {flag} 32 ", token(1));
        for kind in [Kind::Mutex, Kind::Read, Kind::All { ordered: true }] {
            let sent = script(kind, terms(fair), CHANNEL);
            assert!(sent.contains(&expected), "{kind:?}: {sent}");
        }
    }
    let ordered = |ordered| script(Kind::All { ordered }, terms(true), CHANNEL);
    assert!(ordered(true).ends_with(" 7 1000 1") && ordered(false).ends_with(" 7 1000 0"));
    let asking = Acquire { ask: Some(millis(200)), ..Acquire::of(token(1), None) };
    assert!(script(Kind::Mutex, Verb::Acquire(asking), CHANNEL).ends_with(" 0 1000 200"));
    for (kind, ends) in [(Kind::Mutex, " 1000 0 7 0"), (Kind::Read, " 1000 7")] {
        let crowd = Acquire { most_waiting: Some(7), ..Acquire::of(token(1), None) };
        let sent = script(kind, Verb::Acquire(crowd), CHANNEL);
        assert!(sent.ends_with(ends), "{sent}");
    }
}
