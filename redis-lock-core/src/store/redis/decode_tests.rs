//! What each reply of a server means.

use std::time::Duration;

use redis::Value;

use super::decode::*;
use super::direct::{command, token};
use crate::domain::error::FaultClass;
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Blocker, Verb};

fn error(line: &str) -> Value {
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn array<const N: usize>(items: [Value; N]) -> Value {
    Value::Array(items.into())
}

fn acquire(ask: Option<Duration>) -> Verb {
    Verb::Acquire(Acquire { ask, ..Acquire::of("t".into(), None) })
}

fn renew() -> Verb {
    Verb::Renew { token: "t".into(), ttl: None }
}

fn force() -> Verb {
    Verb::Force { tokens: Vec::new(), foreign: None, because: "".into() }
}

fn release() -> Verb {
    Verb::Release { token: "t".into(), waited_for: false, keep: None, bury: None }
}

fn answer(verb: &Verb, value: Value) -> Answer {
    script(verb, value).unwrap().unwrap()
}

fn gone(by: Option<&str>, because: Option<&str>) -> Answer {
    Answer::Gone { by: by.map(Into::into), because: because.map(Into::into) }
}

#[test]
fn errors_that_call_for_another_way_are_told_apart() {
    const DENIED: &str = "NOPERM User app has no permissions to run the 'evalsha' command";
    const OTHER: &str = "NOPERM User app has no permissions to run the 'get' command";
    const UNKNOWN: &str = "ERR unknown command 'EVALSHA', with args beginning with:";
    let of = |value: &Value| {
        [is_forgotten(value), denies_scripts(value), is_demoted(value), crosses_slots(value)]
    };
    for (value, expected) in [
        (error("NOSCRIPT No matching script"), [true, false, false, false]),
        (error(DENIED), [false, true, false, false]),
        (error(OTHER), [false; 4]),
        (error(UNKNOWN), [false, true, false, false]),
        (error("ERR unknown command 'GETX', with args beginning with:"), [false; 4]),
        (error("ERR wrong number of arguments for 'evalsha' command"), [false; 4]),
        (error("READONLY You can't write against a replica"), [false, false, true, false]),
        (
            error("CROSSSLOT Keys in request don't hash to the same slot"),
            [false, false, false, true],
        ),
        (text("NOSCRIPT"), [false; 4]),
    ] {
        assert_eq!(of(&value), expected, "{value:?}");
    }
}

#[test]
fn only_the_script_knows_why_a_key_was_not_released() {
    let asks = |verb: &Verb, value| matches!(plain(verb, value), Ok(Plain::AskScript));
    assert!(asks(&release(), error("WRONGTYPE Operation against a key")));
    assert!(asks(&release(), Value::Int(0)));
    assert!(!asks(&release(), Value::Int(1)));
    assert!(plain(&release(), error("OOM command not allowed")).is_err());
    assert!(plain(&Verb::Ping, error("WRONGTYPE Operation against a key")).is_err());
}

#[test]
fn a_script_that_was_forgotten_has_no_answer() {
    assert!(script(&renew(), error("NOSCRIPT No matching script")).is_none());
    let fault = script(&renew(), error("OOM command not allowed")).unwrap().unwrap_err();
    assert_eq!(fault.class, FaultClass::Refused);
}

#[test]
fn an_acquisition_is_answered_with_the_lock_or_with_who_has_it() {
    let [one, zero] = [Value::Int(1), Value::Int(0)];
    let held = |fence| Answer::Held { fence };
    assert_eq!(answer(&acquire(None), array([one.clone()])), held(None));
    assert_eq!(answer(&acquire(None), array([one.clone(), text("31")])), held(Some(31)));
    let busy = |queued: &Value, repaired: &Value, asked: &Value| {
        let (ttl, flags) = (Value::Int(250), [queued, repaired, asked].map(Value::clone));
        let [queued, repaired, asked] = flags;
        array([Value::Int(0), ttl, text("theirs"), queued, repaired, asked])
    };
    for flags in [[true, false, false], [false, true, false], [false, false, true]] {
        let [queued, repaired, asked] = flags;
        let value = || {
            let [queued, repaired, asked] = flags.map(|flag| if flag { &one } else { &zero });
            busy(queued, repaired, asked)
        };
        let (value_at_key, ttl) = (Some("theirs".into()), Some(Duration::from_millis(250)));
        let blocker = Blocker { value: value_at_key, ttl, queued, repaired, ..Blocker::unknown() };
        let patient = Answer::Busy(Blocker { asked: false, ..blocker.clone() });
        assert_eq!(answer(&acquire(None), value()), patient, "nobody was to be asked");
        let asking = acquire(Some(Duration::from_millis(200)));
        assert_eq!(answer(&asking, value()), Answer::Busy(Blocker { asked, ..blocker }));
    }
    let forever = answer(&acquire(None), array([zero, Value::Int(-1), text("theirs")]));
    assert!(matches!(forever, Answer::Busy(Blocker { ttl: None, .. })), "{forever:?}");
}

#[test]
fn an_acquisition_that_can_not_succeed_is_answered_with_the_reason() {
    assert_eq!(answer(&acquire(None), array([Value::Int(-2)])), Answer::Buried);
    let fault = |code, what| script(&acquire(None), array([Value::Int(code), text(what)])).unwrap();
    let orphan = fault(-3, "theirs").unwrap_err();
    assert!(orphan.class == FaultClass::Permanent && orphan.what.contains("`theirs`"));
    let other = fault(-4, "r").unwrap_err();
    assert_eq!(other.class, FaultClass::Misuse);
    assert!(other.what.contains("reading and writing"), "{}", other.what);
    let mutex = fault(-4, "m").unwrap_err();
    assert!(mutex.what.contains("a mutex"), "{}", mutex.what);
    let foreign = fault(-4, "hash").unwrap_err();
    assert_eq!(foreign.class, FaultClass::Permanent);
    assert!(foreign.what.contains("a hash of another program"), "{}", foreign.what);
}

#[test]
fn a_renewal_is_answered_with_how_long_the_lease_is_and_who_waits() {
    let renewed = |longer: Option<Duration>, waited_for| Answer::Renewed { longer, waited_for };
    let of =
        |left, waits| answer(&renew(), array([Value::Int(1), Value::Int(left), Value::Int(waits)]));
    assert_eq!(answer(&renew(), Value::Int(1)), renewed(None, false));
    assert_eq!(of(0, 0), renewed(None, false));
    assert_eq!(of(0, 1), renewed(None, true));
    assert_eq!(of(40_000, 0), renewed(Some(Duration::from_secs(40)), false));
    assert_eq!(of(-1, 0), renewed(Some(Duration::MAX), false), "it never ends");
    assert_eq!(answer(&release(), array([Value::Int(1), Value::Int(5)])), Answer::Done);
    assert_eq!(answer(&release(), Value::Int(1)), Answer::Done);
}

#[test]
fn what_is_gone_is_answered_with_the_reason_or_with_who_has_it() {
    let zero = || Value::Int(0);
    assert_eq!(answer(&renew(), array([zero()])), gone(None, None));
    assert_eq!(answer(&renew(), array([zero(), text("")])), gone(None, None));
    assert_eq!(answer(&renew(), array([zero(), text("by hand")])), gone(None, Some("by hand")));
    let taken = array([Value::Int(-1), text("theirs")]);
    assert_eq!(answer(&renew(), taken), gone(Some("theirs"), None));
    assert_eq!(answer(&force(), array([zero(), text("by hand")])), gone(None, None));
}

#[test]
fn why_a_lock_is_gone_is_asked_where_the_answer_does_not_say() {
    let check = Verb::Check { token: token(1) };
    let asked = command(Kind::Mutex, check.clone());
    let Some(Verb::Why { token: asks }) = asks_why(&asked, &gone(None, None)).map(|it| it.verb)
    else {
        panic!("it does not ask")
    };
    assert_eq!(Some(&asks), check.token());
    assert!(asks_why(&asked, &gone(Some("theirs"), None)).is_some());
    assert!(asks_why(&asked, &gone(None, Some("by hand"))).is_none(), "it is known");
    assert!(asks_why(&asked, &Answer::Done).is_none());
    assert!(asks_why(&command(Kind::Mutex, release()), &gone(None, None)).is_none());
    assert!(ask_why(&command(Kind::Mutex, release()), &gone(None, None)).is_some());
    let read = crate::store::Command { kind: Kind::Read, ..asked };
    assert!(ask_why(&read, &gone(None, None)).is_none(), "its script has looked");
}

#[test]
fn a_reason_that_was_left_says_more_than_who_has_the_lock() {
    let taken = || gone(Some("theirs"), None);
    let because = gone(None, Some("by hand"));
    assert_eq!(why(taken(), &Value::Nil), taken());
    assert_eq!(why(taken(), &text("")), taken(), "no reason was given");
    assert_eq!(why(taken(), &text("by hand")), because);
    assert_eq!(why(taken(), &array([Value::Nil, text(""), text("by hand")])), because);
    assert_eq!(why(taken(), &array([Value::Nil, Value::Nil])), taken());
}

#[test]
fn a_page_of_keys_says_whether_there_are_more() {
    let page = |cursor, keys| match plain(&Verb::Scan { cursor: 0 }, array([text(cursor), keys])) {
        Ok(Plain::Answer(Answer::Keys { keys, next })) => Some((keys, next)),
        Ok(other) => panic!("{:?}", matches!(other, Plain::AskScript)),
        Err(_) => None,
    };
    let keys = || array([text("a"), Value::BulkString(vec![0xff]), Value::Int(1), text("b")]);
    let both = || vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(page("0", keys()), Some((both(), None)));
    assert_eq!(page("17", keys()), Some((both(), Some(17))));
    assert_eq!(page("x", keys()), None);
    assert_eq!(page("0", Value::Nil), None);
}

#[test]
fn what_scripts_tell_beside_the_answer_is_noticed() {
    let int = Value::Int;
    let busy = |repaired| array([int(0), int(5), text("theirs"), int(0), int(repaired), int(7)]);
    assert_eq!(repaired(&busy(1)).as_deref(), Some("theirs"));
    assert_eq!(repaired(&busy(0)), None);
    assert_eq!(repaired(&array([int(1), int(5), text("theirs"), int(0), int(1)])), None);
    assert_eq!(other_limit(&busy(0)), Some(7));
    assert_eq!(other_limit(&array([int(1), Value::Nil, int(3)])), Some(3));
    assert_eq!(other_limit(&array([int(1), Value::Nil, int(0)])), None);
    assert_eq!(other_limit(&array([int(-2), Value::Nil, int(3)])), None);
}
