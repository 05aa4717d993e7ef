//! Releases of many locks in one call, and what is sent before and after them.

use redis::Cmd;

use super::{Answers, TTL, Talk, for_key, hold, load_scripts, release, renewal};
use crate::domain::names::Names;
use crate::store::redis::direct::{Direct, token};
use crate::store::redis::probe::{Delete, Found};
use crate::store::{Acquire, Answer, Command, Verb};

pub(super) fn take(key: usize, by: usize) -> Command {
    for_key(key, Verb::Take { token: token(by), ttl: Some(TTL) })
}

/// The name of a command, and how many words it has.
pub(super) fn shape(cmd: &Cmd) -> (String, usize) {
    let mut words = cmd.args_iter().filter_map(|arg| match arg {
        redis::Arg::Simple(word) => Some(String::from_utf8_lossy(word).into_owned()),
        redis::Arg::Cursor => None,
        _ => None,
    });
    let name = words.next().unwrap_or_default();
    (name, 1 + words.count())
}

/// Sixty locks, all of which but a few are simply their holders'.
pub(super) fn hold_all_but_some(direct: &Direct) {
    hold(direct, 0..60, 5_000);
    let run = |line: &str| direct.server.run::<()>(line);
    run("DEL lock:1");
    run(&format!("SET lock:2 {} PX 5000", token(99)));
    run(&format!("SET lock:3 {}+ PX 5000", token(3)));
    run("DEL lock:4");
    run("RPUSH lock:4 something");
    run("DEL lock:5");
    run(&format!("SET {} because", Names::new("lock", "lock:5").tombstone(&token(5))));
}

/// Each of their releases has the answer that fits, and what is not theirs is left.
pub(super) fn assert_each_released(mut answers: Answers, direct: &Direct) {
    let mut answer = |seq| answers.remove(&seq).unwrap().unwrap();
    let gone = |by: Option<String>| Answer::Gone { by, because: None };
    assert_eq!(answer(1), gone(None));
    assert_eq!(answer(2), gone(Some(token(99).to_string())));
    assert_eq!(answer(3), Answer::Done, "somebody waits for it");
    assert_eq!(answer(4), gone(Some("(a value of another type)".into())));
    assert_eq!(answer(5), Answer::Gone { by: None, because: Some("because".into()) });
    for number in [0].into_iter().chain(6..60) {
        assert_eq!(answer(number), Answer::Done, "{number}");
    }
    let mut left = direct.server.run::<Vec<String>>("KEYS lock:*");
    left.retain(|key| !key.contains('{'));
    left.sort();
    assert_eq!(left, ["lock:2", "lock:4"]);
}

#[test]
fn each_of_many_releases_has_its_own_answer() {
    for mut direct in Direct::each() {
        hold_all_but_some(&direct);
        let mut talk = Talk::new();
        for number in 0..60 {
            talk.ask(number as u64, release(number));
        }
        let answers = talk.finish(&mut direct);
        // The server had not heard of the script, so it is sent in full.
        assert_eq!(talk.breaths[..3], [1, 1, 5], "and one for each that is not simple");
        assert_each_released(answers, &direct);
    }
}

#[test]
fn a_take_passes_the_releases_of_other_locks_and_follows_that_of_its_own() {
    for mut direct in Direct::each() {
        let mut talk = Talk::new();
        talk.ask(0, release(0));
        talk.ask(1, release(1));
        // From now on the server knows the script, as it does when a manager has connected.
        talk.finish(&mut direct);
        hold(&direct, 0..4, 5_000);
        talk.ask(0, release(0));
        talk.ask(1, take(9, 9));
        talk.ask(2, release(1));
        let sent = talk.flush();
        let shapes: Vec<_> = sent.iter().map(shape).collect();
        assert_eq!(shapes, [("SET".into(), 6), ("EVALSHA".into(), 7)], "two locks in one call");

        let mut talk = Talk::new();
        talk.ask(0, release(2));
        talk.ask(1, release(3));
        talk.ask(2, take(2, 8));
        talk.ask(3, take(3, 3));
        let answers = talk.finish(&mut direct);
        assert!(answers.values().all(Result::is_ok), "{answers:?}");
        let held = Ok(Answer::Held { fence: None });
        assert_eq!((&answers[&2], &answers[&3]), (&held, &held), "they were released before");
    }
}

#[test]
fn a_take_of_a_lock_whose_release_was_sent_passes_those_that_are_collected() {
    let mut talk = Talk::new();
    for number in 0..70 {
        talk.ask(number as u64, release(number));
    }
    talk.ask(70, take(0, 99));
    talk.ask(71, release(70));
    let shapes: Vec<_> = talk.flush().iter().map(shape).collect();
    let many = |count: usize| ("EVALSHA".to_owned(), 3 + 2 * count);
    assert_eq!(shapes, [many(64), ("SET".into(), 6), many(7)]);
    talk.ask(72, renewal(1, TTL));
    for number in 2..66 {
        talk.ask(number as u64, release(number));
    }
    talk.ask(73, take(1, 99));
    let shapes: Vec<_> = talk.flush().iter().map(shape).collect();
    assert_eq!(shapes, [many(64), many(2), ("SET".into(), 6)], "it is renewed first");
}

#[test]
fn whoever_may_not_read_many_keys_releases_each_by_itself() {
    for mut direct in Direct::each() {
        direct.become_user("~lock:* +@all -mget");
        let mut talk = Talk::new();
        for turn in 0..2 {
            hold(&direct, 0..10, 5_000);
            for number in 0..10 {
                talk.ask(number as u64, release(number));
            }
            let answers = talk.finish(&mut direct);
            assert!(answers.values().all(|it| *it == Ok(Answer::Done)), "{turn}: {answers:?}");
        }
        let again = talk.breaths.iter().rev().nth(1);
        assert_eq!(again, Some(&10), "it is not tried again: {:?}", talk.breaths);
    }
}

#[test]
fn what_follows_the_releases_of_whoever_may_not_read_many_keys_comes_after_them() {
    for mut direct in Direct::each() {
        direct.become_user("~lock:* +@all -mget");
        load_scripts(&mut direct);
        hold(&direct, 0..3, 5_000);
        direct.server.run::<()>("DEL lock:1");
        let mut talk = Talk::new();
        for number in 0..3 {
            talk.ask(number as u64, release(number));
        }
        let acquire = || Verb::Acquire(Acquire::of(token(7), Some(TTL)));
        talk.ask(3, for_key(0, acquire()));
        let answers = talk.finish(&mut direct);
        assert_eq!(answers[&3], Ok(Answer::Held { fence: None }));
        assert_eq!(answers[&1], Ok(Answer::Gone { by: None, because: None }));
        assert_eq!((&answers[&0], &answers[&2]), (&Ok(Answer::Done), &Ok(Answer::Done)));
    }
}

#[test]
fn a_server_that_compares_and_deletes_is_sent_each_release() {
    let found = Found { delete: Delete::DelIfEq, ..Found::default() };
    let mut talk = Talk::with(found);
    for number in 0..10 {
        talk.ask(number as u64, release(number));
    }
    let sent = talk.flush();
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|cmd| shape(cmd) == ("DELIFEQ".into(), 3)));
}
