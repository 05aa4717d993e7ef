//! Renewals of many locks in one call, as a server answers them, and as one could.

mod random_rounds;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionLike, Value};

use super::Conversation;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::redis::listen::Channel;
use crate::store::redis::probe::Found;
use crate::store::redis::scripts;
use crate::store::redis::test_direct::{Direct, token};
use crate::store::{Answer, Command, Pulled, Verb};

const TTL: Duration = Duration::from_secs(30);

type Answers = BTreeMap<u64, Result<Answer, Fault>>;

fn conversation(found: Found) -> Conversation {
    Conversation::new(found, Arc::default(), Channel::default(), None)
}

fn for_key(number: usize, verb: Verb) -> Command {
    let names = Names::new("lock", format!("lock:{number}"));
    Command { names, kind: Kind::Mutex, verb, timeout: Duration::from_secs(1) }
}

fn renewal(number: usize, ttl: Duration) -> Command {
    for_key(number, Verb::Renew { token: token(number), ttl: Some(ttl) })
}

fn renewed(waited_for: bool) -> Answer {
    Answer::Renewed { longer: None, waited_for, slot: None }
}

/// A conversation with a real server, or with a server that the test plays.
struct Talk {
    conversation: Conversation,
    /// The commands to send.
    out: Vec<Cmd>,
    /// How many commands each call took.
    breaths: Vec<usize>,
}

impl Talk {
    fn new() -> Self {
        Self::with(Found::default())
    }

    /// With a server of which this was found out.
    fn with(found: Found) -> Self {
        Self { conversation: conversation(found), out: Vec::new(), breaths: Vec::new() }
    }

    fn ask(&mut self, seq: u64, command: Command) {
        let out = &mut self.out;
        self.conversation.ask(seq, command, out);
    }

    fn flush(&mut self) -> Vec<Cmd> {
        let out = &mut self.out;
        self.conversation.send_bundles(out);
        self.breaths.push(self.out.len());
        std::mem::take(&mut self.out)
    }

    fn hear(&mut self, value: Value, wants: &mut dyn FnMut(u64) -> bool) {
        let out = &mut self.out;
        self.conversation.take_reply(value, wants, out);
    }

    /// Sends commands and takes replies until nothing is left to be sent.
    fn finish(&mut self, direct: &mut Direct) -> Answers {
        let mut answers = Answers::new();
        loop {
            let sent = self.flush();
            if sent.is_empty() {
                return answers;
            }
            for cmd in sent {
                let packed = cmd.get_packed_command();
                let value = direct.connection.req_packed_commands(&packed, 0, 1).unwrap().remove(0);
                self.hear(value, &mut |_| true);
            }
            while let Some(pulled) = self.conversation.next_done() {
                let Pulled::Done(seq, answer) = pulled else { panic!("{pulled:?}") };
                assert!(answers.insert(seq, answer).is_none(), "{seq} was answered twice");
            }
        }
    }
}

/// Has the server know the scripts, as it does when a manager has connected.
fn load_scripts(direct: &mut Direct) {
    for script in scripts::all() {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&script.code);
        let _ = direct.connection.req_command(&load);
    }
}

fn hold(direct: &Direct, numbers: std::ops::Range<usize>, millis: u64) {
    for number in numbers {
        direct.server.run::<()>(&format!("SET lock:{number} {} PX {millis}", token(number)));
    }
}

#[test]
fn lg30_each_of_many_renewals_has_its_own_answer() {
    for mut direct in Direct::each() {
        hold(&direct, 0..60, 5_000);
        let run = |line: &str| direct.server.run::<()>(line);
        run("DEL lock:1");
        run(&format!("SET lock:2 {}", token(99)));
        run(&format!("SET lock:3 {}+ PX 5000", token(3)));
        run("DEL lock:4");
        run("RPUSH lock:4 something");
        run(&format!("SET lock:5 {} PX 90000", token(5)));
        run(&format!("SET lock:6 {}", token(6)));
        run(&format!("SET lock:7 {}", token(98)));
        run(&format!("SET {} because", Names::new("lock", "lock:7").tombstone(&token(7))));
        let mut talk = Talk::new();
        for number in 0..60 {
            talk.ask(number as u64, renewal(number, TTL));
        }
        let mut answers = talk.finish(&mut direct);
        let mut answer = |seq| answers.remove(&seq).unwrap().unwrap();
        let gone = |by: Option<String>| Answer::Gone { by, because: None };
        assert_eq!(answer(1), gone(None));
        assert_eq!(answer(2), gone(Some(token(99).to_string())));
        assert_eq!(answer(3), renewed(true));
        assert_eq!(answer(4), gone(Some("(a value of another type)".into())));
        let Answer::Renewed { longer: Some(longer), .. } = answer(5) else { panic!("90 s") };
        assert!(longer > TTL);
        assert_eq!(
            answer(6),
            Answer::Renewed { longer: Some(Duration::MAX), waited_for: false, slot: None }
        );
        assert_eq!(answer(7), Answer::Gone { by: None, because: Some("because".into()) });
        for number in [0].into_iter().chain(8..60) {
            assert_eq!(answer(number), renewed(false), "{number}");
        }
        for number in [0, 3, 8, 59] {
            let left = direct.server.pttl(&format!("lock:{number}")).unwrap();
            assert!((20_000..=30_000).contains(&left), "{number}: {left}");
        }
        assert!(direct.server.pttl("lock:5").unwrap() > 60_000, "not shortened");
        assert_eq!(direct.server.run::<i64>("PTTL lock:6"), -1, "not given an end");
        // The server had not heard of the script, so it is sent in full; then six are asked alone.
        assert_eq!(talk.breaths.first(), Some(&1));
    }
}

#[test]
fn lg32_renewals_of_one_breath_go_64_to_a_call_and_each_lease_with_its_like() {
    for mut direct in Direct::each() {
        hold(&direct, 0..200, 5_000);
        let mut talk = Talk::new();
        let ttl = |number| if number % 2 == 0 { TTL } else { TTL * 2 };
        for number in 0..200 {
            talk.ask(number as u64, renewal(number, ttl(number)));
        }
        let answers = talk.finish(&mut direct);
        assert_eq!(talk.breaths.first(), Some(&4), "two times 64 and 36");
        assert_eq!(answers.len(), 200);
        assert!(answers.values().all(|it| matches!(it, Ok(answer) if *answer == renewed(false))));
        for number in 0..200 {
            let left = direct.server.pttl(&format!("lock:{number}")).unwrap();
            let ttl = ttl(number).as_millis() as i64;
            assert!((ttl - 10_000..=ttl).contains(&left), "{number}: {left}");
        }
    }
}

#[test]
fn a_bundle_keeps_its_place_before_what_is_asked_after_it() {
    let mut direct = Direct::each().remove(0);
    hold(&direct, 0..3, 5_000);
    let mut talk = Talk::new();
    talk.ask(0, renewal(0, TTL));
    talk.ask(1, renewal(1, TTL));
    talk.ask(2, release(0));
    talk.ask(3, renewal(2, TTL));
    let answers = talk.finish(&mut direct);
    assert_eq!(talk.breaths.first(), Some(&3));
    let renewed = |seq| matches!(&answers[&seq], Ok(Answer::Renewed { .. }));
    assert!(renewed(0) && renewed(1) && renewed(3), "{answers:?}");
    assert!(matches!(answers[&2], Ok(Answer::Done)));
}

#[test]
fn names_that_are_long_go_in_several_calls() {
    let mut talk = Talk::new();
    for number in 0..10 {
        let names = Names::new("lock", format!("lock:{}{number}", "x".repeat(3_000)));
        talk.ask(number, Command { names, ..renewal(1, TTL) });
    }
    assert_eq!(talk.flush().len(), 4, "three to a call, and one alone");
}

#[test]
fn whoever_may_not_read_many_keys_renews_each_by_itself() {
    for mut direct in Direct::each_with_users() {
        hold(&direct, 0..10, 5_000);
        direct.become_user("~lock:* +@all -mget");
        let mut talk = Talk::new();
        for turn in 0..2 {
            for number in 0..10 {
                talk.ask(number as u64, renewal(number, TTL));
            }
            let answers = talk.finish(&mut direct);
            assert!(answers.values().all(|it| matches!(it, Ok(Answer::Renewed { .. }))));
            assert_eq!(answers.len(), 10, "turn {turn}");
        }
        let again = talk.breaths.iter().rev().nth(1);
        assert_eq!(again, Some(&10), "it is not tried again: {:?}", talk.breaths);
    }
}

fn release(number: usize) -> Command {
    let token = token(number);
    for_key(
        number,
        Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None },
    )
}

fn error(text: &str) -> Value {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
}

fn two(talk: &mut Talk) {
    for number in 1..=2 {
        talk.ask(number as u64, renewal(number, TTL));
    }
    assert_eq!(talk.flush().len(), 1);
}

#[test]
fn what_nobody_wants_any_more_is_not_asked_again() {
    for refusal in ["NOSCRIPT No matching script", "LOADING the dataset in memory"] {
        let mut talk = Talk::new();
        two(&mut talk);
        talk.hear(error(refusal), &mut |seq| seq == 2);
        assert_eq!(talk.flush().len(), 1);
        let Some(Pulled::Done(1, Err(fault))) = talk.conversation.next_done() else {
            panic!("its token is being released")
        };
        assert!(!fault.class.is_unknown());
        assert!(talk.conversation.next_done().is_none());
    }
}

#[test]
fn lg31_an_answer_that_can_not_be_one_ends_the_connection_and_answers_nobody() {
    let int = |number| Value::Array(vec![Value::Int(number)]);
    for value in [Value::Int(1), Value::Okay, int(0), int(3), int(-3), int(i64::MIN), Value::Nil] {
        let mut talk = Talk::new();
        two(&mut talk);
        talk.hear(value.clone(), &mut |_| true);
        let pulled = talk.conversation.next_done();
        assert!(matches!(pulled, Some(Pulled::Broken(_))), "{value:?}: {pulled:?}");
        assert!(talk.flush().is_empty());
    }
}

#[test]
fn a_demoted_server_is_not_asked_again() {
    let mut talk = Talk::new();
    two(&mut talk);
    talk.hear(error("READONLY You can't write against a read only replica."), &mut |_| true);
    for wanted in 1..=2 {
        let pulled = talk.conversation.next_done();
        assert!(matches!(pulled, Some(Pulled::Done(seq, Err(_))) if seq == wanted), "{pulled:?}");
    }
    assert!(matches!(talk.conversation.next_done(), Some(Pulled::Broken(_))));
    assert!(talk.flush().is_empty());
}
