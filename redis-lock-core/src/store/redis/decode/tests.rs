//! What each reply of a server means.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, ServerErrorKind, Value};

use super::*;
use crate::domain::clock::Moment;
use crate::domain::fault::FaultClass;
use crate::domain::kind::Kind;
use crate::domain::status::LockKind;
use crate::store::redis::test_direct::{command, token};
use crate::store::{Acquire, Answer, Blocker, ServerView, Verb};

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
    Verb::Release { token: "t".into(), waited_for: false, keep: None, share: None, tombstone: None }
}

fn answer(verb: &Verb, value: Value) -> Answer {
    script(verb, value).unwrap().unwrap()
}

fn gone(by: Option<&str>, because: Option<&str>) -> Answer {
    Answer::Gone { by: by.map(Into::into), because: because.map(Into::into) }
}

#[test]
fn errors_that_call_for_another_way_are_distinguished() {
    let of = |value: &Value| {
        [is_forgotten(value), denies_scripts(value), is_demoted(value), crosses_slots(value)]
    };
    for (value, expected) in [
        (error("NOSCRIPT No matching script"), [true, false, false, false]),
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
fn scripts_that_are_denied_are_noticed_whatever_the_version() {
    for denied in [
        "ERR unknown command 'eval'",
        "ERR unknown command 'EVALSHA', with args beginning with: 'abc' '0' ",
        "ERR unknown command `EVALSHA`, with args beginning with: `abc`, `0`, ",
        "ERR unknown command `eval`, with args beginning with: ",
        "NOPERM this user has no permissions to run the 'eval' command or its subcommand",
        "NOPERM User app has no permissions to run the 'evalsha' command",
        "NOPERM User who wants to run the 'get' has no permissions to run the 'eval' command",
    ] {
        assert!(denies_scripts(&error(denied)), "{denied}");
    }
    for other in [
        "ERR unknown command 'GETX', with args beginning with: 'eval' ",
        "ERR unknown command `GETX`, with args beginning with: `eval`, ",
        "ERR unknown command ",
        "ERR wrong number of arguments for 'evalsha' command",
        "NOPERM User 'eval' has no permissions to run the 'get' command",
        "NOPERM this user has no permissions to access one of the keys used as arguments",
    ] {
        assert!(!denies_scripts(&error(other)), "{other}");
    }
}

#[test]
fn only_the_script_knows_why_a_key_was_not_released() {
    let asks = |verb: &Verb, value| matches!(plain(verb, value), Ok(None));
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
    let held = |fence| Answer::Held { fence, slot: None };
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
    assert_eq!(answer(&acquire(None), array([Value::Int(-2)])), Answer::Tombstone);
    let fault = |code, what| script(&acquire(None), array([Value::Int(code), text(what)])).unwrap();
    let orphan = fault(-3, "theirs").unwrap_err();
    assert!(orphan.class == FaultClass::Permanent && orphan.what.contains("`theirs`"));
    let other = fault(-4, "r").unwrap_err();
    assert_eq!(other.class, FaultClass::Misuse);
    assert!(other.what.contains("reading and writing"), "{}", other.what);
    let mutex = fault(-4, "mutex").unwrap_err();
    assert!(mutex.what.contains("a mutex"), "{}", mutex.what);
    let foreign = fault(-4, "hash").unwrap_err();
    assert_eq!(foreign.class, FaultClass::Permanent);
    assert!(foreign.what.contains("a hash of another program"), "{}", foreign.what);
}

#[test]
fn a_renewal_is_answered_with_how_long_the_lease_is_and_who_waits() {
    let renewed =
        |longer: Option<Duration>, waited_for| Answer::Renewed { longer, waited_for, slot: None };
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
    let read = Command { kind: Kind::Read, ..asked };
    assert!(asks_why(&read, &gone(None, None)).is_some(), "whatever kind it is");
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
        Ok(Some(Answer::Keys { keys, next })) => Some((keys, next)),
        Ok(other) => panic!("{other:?}"),
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
    let repaired = |value| match answer(&acquire(None), value) {
        Answer::Busy(blocker) => blocker.value.filter(|_| blocker.repaired),
        _ => None,
    };
    assert_eq!(repaired(busy(1)).as_deref(), Some("theirs"));
    assert_eq!(repaired(busy(0)), None);
    assert_eq!(repaired(array([int(1), text("5"), text("theirs"), int(0), int(1)])), None);
    assert_eq!(other_limit(&busy(0)), Some(7));
    assert_eq!(other_limit(&array([int(1), Value::Nil, int(3)])), Some(3));
    assert_eq!(other_limit(&array([int(1), Value::Nil, int(0)])), None);
    assert_eq!(other_limit(&array([int(-2), Value::Nil, int(3)])), None);
}

/// The reply of `look.lua`, with an empty queue.
fn looked(kind: Value, holders: Value, fence: &str, limit: i64) -> ServerView {
    let nothing = || array([]);
    let (none, fence, limit) = (|| Value::Int(0), text(fence), Value::Int(limit));
    let reply = array([kind, holders, nothing(), fence, limit, none(), none(), text("")]);
    match answer(&Verb::Look, reply) {
        Answer::Seen(view) => *view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_look_shows_who_has_a_lock_of_each_kind() {
    let (first, second) = (token(1), token(2));
    let tokens = |view: &ServerView| {
        let each = view.holders.iter().map(|holder| holder.token.to_string());
        each.collect::<Vec<_>>()
    };
    let free = looked(text("none"), array([]), "", 0);
    assert_eq!((free.kind, free.holders.len()), (LockKind::Free, 0));
    for kind in [text("string"), Value::SimpleString("string".into())] {
        let holder = array([text(&first), Value::Int(250)]);
        let mutex = looked(kind, holder, &format!("64 {first}"), 0);
        assert_eq!((mutex.kind, tokens(&mutex)), (LockKind::Mutex, vec![first.to_string()]));
        let [holder] = mutex.holders.as_slice() else { panic!("{mutex:?}") };
        assert_eq!((holder.ttl, holder.fence), (Some(Duration::from_millis(250)), Some(33)));
    }
    let lasting = looked(text("string"), array([text(&first), Value::Int(-1)]), "", 0);
    assert_eq!(lasting.holders[0].ttl, None);
    let members = ["p:", "p:"].into_iter().zip([&first, &second]);
    let member = |((mode, token), slot): ((&str, &Arc<str>), i64)| {
        [text(&[mode, token].concat()), Value::Int(5), Value::Int(slot)]
    };
    let members = Value::Array(members.zip([2, -1]).flat_map(member).collect());
    let permits = looked(text("zset"), members, "", 3);
    assert_eq!(tokens(&permits), [first.to_string(), second.to_string()]);
    assert_eq!(permits.kind, LockKind::from(Kind::Permit { limit: 3 }));
    let slots: Vec<_> = permits.holders.iter().map(|holder| holder.slot).collect();
    assert_eq!(slots, [Some(2), None]);
    assert_eq!(looked(text("hash"), array([]), "", 0).kind, LockKind::Foreign);
}

#[test]
fn a_look_shows_who_waits_and_how_many_more_there_are() {
    let waiters = array([text(&token(1)), text(&token(2))]);
    let more = [Value::Int(3), Value::Int(4), text("1a2b")];
    let head = [text("none"), array([]), waiters, text(""), Value::Int(0)];
    let reply = Value::Array(head.into_iter().chain(more).collect());
    let Answer::Seen(view) = answer(&Verb::Look, reply) else { panic!("nothing was seen") };
    assert_eq!((view.waiters.len(), view.more_holders, view.more_waiters), (2, 3, 4));
    assert_eq!(view.foreign.as_deref(), Some("1a2b"));
}

#[test]
fn the_code_of_an_error_is_found_where_servers_put_it() {
    let code = |line: &str| match error(line) {
        Value::ServerError(error) => code_of(&error).to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code("ERR The user executing the script can't run this command"), "NOPERM");
    assert_eq!(code("ERR ACL failure in script: no permission to run the 'get' command"), "NOPERM");
    assert_eq!(code("ERR Error running script (call to f_1): -OOM no memory"), "OOM");
    assert_eq!(code("ERR Error compiling script: BUSY"), "BUSY");
    assert_eq!(code("ERR the value OOM is not a number"), "ERR");
    assert_eq!(code("BUSY Error running script (call to f_1): -OOM no memory"), "BUSY");
}

#[test]
fn refusals_say_whether_waiting_helps_and_what_else_would() {
    for (line, class, advice) in [
        ("LOADING it reads", FaultClass::Refused, "just started"),
        ("MASTERDOWN no link", FaultClass::Refused, "a replica that lost its primary"),
        ("TRYAGAIN it moves", FaultClass::Moving, "being moved"),
        ("MOVED 1 elsewhere:1", FaultClass::Refused, "redis-cluster://"),
        ("ASK 1 elsewhere:1", FaultClass::Refused, "redis-cluster://"),
        ("CLUSTERDOWN no", FaultClass::Refused, "`CLUSTER INFO`"),
        ("READONLY no", FaultClass::Refused, "name the primary"),
        ("WRONGTYPE no", FaultClass::Permanent, "use another key or namespace"),
        ("NOAUTH no", FaultClass::Permanent, "redis://:password@host"),
        ("WRONGPASS no", FaultClass::Permanent, "check user and password in the URL"),
        ("NOPERM no", FaultClass::Permanent, "guide/protocol"),
    ] {
        let Value::ServerError(error) = error(line) else { panic!("{line}") };
        let mut faults = vec![refusal(&error)];
        // Nothing that is asked while connecting has a key.
        if !["MOVED", "ASK"].contains(&code_of(&error)) {
            faults.push(unreachable(error.into()));
        }
        for fault in faults {
            assert_eq!(fault.class, class, "{}", fault.what);
            assert!(fault.what.contains("; ") && fault.what.contains(advice), "{}", fault.what);
        }
    }
}

#[test]
fn causes_that_keep_from_connecting_are_distinguished() {
    let class_of = |error: RedisError, advice: &str| {
        let fault = unreachable(error);
        let given = fault.what.split_once("; ").map_or("", |(_, advice)| advice);
        assert!(
            given.starts_with(advice) && given.is_empty() == advice.is_empty(),
            "{}",
            fault.what
        );
        fault.class
    };
    let failed = ErrorKind::Server(ServerErrorKind::ResponseError);
    let password = (ErrorKind::AuthenticationFailed, "Password authentication failed");
    assert_eq!(class_of(password.into(), "check user and password"), FaultClass::Permanent);
    let refused = "Redis server refused to switch database";
    for (text, detail, advice) in [
        (refused, "SELECT is not allowed in cluster mode", "the number after"),
        ("An error was signalled by the server", "DB index is out of range", "the number after"),
        (refused, "Authentication required.", "the server wants a password"),
        (
            refused,
            "User app has no permissions to run the 'select' command",
            "https://docs.rs/redis-locks",
        ),
    ] {
        let fault = (failed, text, detail.to_owned());
        assert_eq!(class_of(fault.into(), advice), FaultClass::Permanent);
    }
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    assert_eq!(class_of(broken.into(), ""), FaultClass::Refused);
}

#[test]
fn d13_no_value_of_any_shape_causes_a_panic() {
    let verb = Verb::Acquire(Acquire::of("t".into(), None));
    let values = [
        Value::Nil,
        Value::Okay,
        Value::Int(i64::MIN),
        Value::Double(f64::NAN),
        Value::BulkString(vec![0xff, 0]),
        Value::Array(vec![]),
        Value::Array(vec![Value::Nil, Value::Array(vec![])]),
        Value::Array(vec![Value::Int(1)]),
        Value::Array(vec![Value::Int(0), Value::Int(i64::MIN)]),
        Value::Array(vec![Value::Int(7)]),
        Value::Map(vec![(Value::Nil, Value::Nil)]),
    ];
    for value in values {
        let _ = script(&verb, value.clone());
        let _ = plain(&verb, value);
    }
}

#[test]
fn an_answer_that_no_script_gives_means_nothing() {
    let token = || "t".into();
    let verbs = [
        Verb::Acquire(Acquire::of(token(), None)),
        Verb::Renew { token: token(), ttl: None },
        Verb::Check { token: token() },
        Verb::Release {
            token: token(),
            waited_for: true,
            keep: None,
            share: None,
            tombstone: None,
        },
    ];
    let code = |code| Value::Array(vec![Value::Int(code), Value::Nil]);
    let values = [Value::Nil, Value::Okay, Value::Int(0), Value::Int(7), code(7), code(-9)];
    for verb in &verbs {
        for value in values.iter().chain([&Value::Array(vec![])]) {
            let fault = script(verb, value.clone()).unwrap().unwrap_err();
            assert_eq!(fault.class, FaultClass::Unknown, "{verb:?} {value:?}");
        }
    }
    let take = Verb::Take { token: token(), ttl: None };
    for value in [Value::Int(1), Value::Int(0), code(1)] {
        assert!(plain(&take, value.clone()).is_err(), "{value:?}");
    }
}

#[test]
fn no_time_is_so_large_that_it_overflows() {
    assert_eq!(time((1, 5)), Some(Moment::from_nanos(1_000_005_000)));
    for odd in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 50, 0)] {
        assert_eq!(time(odd), None, "{odd:?}");
    }
    assert_eq!(left(-1), None);
    let longest = left(i64::MAX).unwrap();
    assert!(Moment::START.after(longest * 2) < Moment::NEVER);
}

#[test]
fn e10_the_code_inside_a_wrapped_script_error_counts() {
    let detail = "Error running script (call to f_1): @user_script:7: @user_script: 7: -OOM command not allowed";
    assert_eq!(inner_code("ERR", detail), "OOM");
    let detail = "Error running script (call to f_1): -READONLY You can't write against a read only replica.";
    assert_eq!(inner_code("ERR", detail), "READONLY");
    let detail =
        "Error running script (call to f_1): @user_script:7: WRONGTYPE Operation against a key";
    assert_eq!(inner_code("ERR", detail), "WRONGTYPE");
    for code in CODES {
        let detail = format!("Error running script (call to f_1): @user_script:7: -{code} no");
        assert_eq!(inner_code("ERR", &detail), code);
    }
    assert_eq!(inner_code("ERR", "unknown command 'X-Y'"), "ERR");
    assert_eq!(inner_code("OOM", ""), "OOM");
}

#[test]
fn errors_are_distinguished_by_whether_waiting_helps() {
    for code in ["OOM", "MISCONF", "NOREPLICAS", "LOADING", "BUSY", "READONLY"] {
        assert_eq!(classify(code, "").0, FaultClass::Refused, "{code}");
    }
    assert_eq!(classify("TRYAGAIN", "").0, FaultClass::Moving);
    for code in ["NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "CROSSSLOT", "ERR"] {
        assert_eq!(classify(code, "").0, FaultClass::Permanent, "{code}");
    }
    assert_eq!(classify("ERR", "max number of clients reached").0, FaultClass::Refused);
}

#[test]
fn places_in_scripts_are_left_out() {
    for (code, detail, said) in [
        ("READONLY", "no writes here. script: 2cbf, on @user_script:379.", "no writes here"),
        ("NOPERM", "ACL failure in script: no right", "ACL failure in script: no right"),
        (
            "OOM",
            "Error running script (call to f_1): @user_script:7: @user_script: 7: -OOM no memory",
            "no memory",
        ),
        ("NOAUTH", "Authentication required.", "Authentication required"),
        ("ERR", "a script: of the user", "a script: of the user"),
    ] {
        assert_eq!(said_by_server(code, detail), said);
    }
}

#[test]
fn names_that_only_the_driver_has_are_left_out() {
    let failed = ErrorKind::Server(ServerErrorKind::ResponseError);
    for (error, said) in [
        ((ErrorKind::InvalidClientConfig, "Missing hostname").into(), "Missing hostname"),
        ((failed, "It failed", "no database".to_owned()).into(), "It failed: no database"),
        (redis::make_extension_error("NOAUTH".into(), Some("Who?".into())), "NOAUTH Who?"),
    ] {
        assert_eq!(said_by_driver(&error, 80), said);
    }
    assert_eq!(said_by_driver(&(failed, "It failed").into(), 3), "It …");
}
