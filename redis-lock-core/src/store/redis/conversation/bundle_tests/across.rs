//! Bundles for a node of a cluster, whose locks are in several slots.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use testbed::Server;

use super::looks::{PERMIT, look};
use super::releases::{assert_each_released, hold_all_but_some, shape, take};
use super::{
    Conversation, TTL, Talk, error, for_key, hold, load_scripts, release, renewal, renewed,
};
use crate::store::redirect::Redirect;
use crate::store::redis::channel::Channel;
use crate::store::redis::direct::{Direct, token};
use crate::store::redis::nodes::Member;
use crate::store::redis::probe::{Delete, Found};
use crate::store::{Answer, Pulled, Verb};

/// What is found out about a node that lets scripts use keys of several slots.
pub(super) fn found() -> Found {
    Found { cluster: true, crosses_slots: true, ..Found::default() }
}

/// A cluster of one node for each installed server that lets scripts do this.
pub(super) fn each() -> impl Iterator<Item = Direct> {
    let binaries = Direct::binaries().filter(|binary| binary.version().0 >= 7);
    binaries.map(|binary| Direct::start(Server::builder().binary(binary).cluster()))
}

/// A conversation with one node of several, which the test plays.
fn with_node() -> Talk {
    let member = Some(Member::of_cluster("a:7000"));
    let found = Found { cluster: false, ..found() };
    let conversation = Conversation::new(found, Arc::default(), Channel::default(), member);
    Talk { conversation, ..Talk::new() }
}

fn release_each(talk: &mut Talk, count: u64) {
    for number in 0..count {
        talk.ask(number, release(number as usize));
    }
}

#[test]
fn each_of_many_releases_in_several_slots_has_its_own_answer() {
    for mut direct in each() {
        load_scripts(&mut direct);
        hold_all_but_some(&direct);
        let mut talk = Talk::with(found());
        release_each(&mut talk, 60);
        let answers = talk.finish(&mut direct);
        assert_eq!(talk.breaths[..2], [1, 5], "one for all, and one for each that is not simple");
        assert_each_released(answers, &direct);
    }
}

#[test]
fn each_of_many_renewals_in_several_slots_has_its_own_answer() {
    for mut direct in each() {
        load_scripts(&mut direct);
        hold(&direct, 0..60, 5_000);
        let run = |line: &str| direct.server.run::<()>(line);
        run("DEL lock:1");
        run(&format!("SET lock:2 {} PX 5000", token(99)));
        run(&format!("SET lock:3 {}+ PX 5000", token(3)));
        run("DEL lock:4");
        run("RPUSH lock:4 something");
        run(&format!("SET lock:5 {} PX 90000", token(5)));
        run(&format!("SET lock:6 {}", token(6)));
        run(&format!("PEXPIRE lock:7 {}", TTL.as_millis() + 500));
        let mut talk = Talk::with(found());
        for number in 0..60 {
            talk.ask(number as u64, renewal(number, TTL));
        }
        let mut answers = talk.finish(&mut direct);
        assert_eq!(talk.breaths[..2], [1, 5], "one for all, and one for each that is not simple");
        let mut answer = |seq| answers.remove(&seq).unwrap().unwrap();
        let gone = |by: Option<String>| Answer::Gone { by, because: None };
        assert_eq!(answer(1), gone(None));
        assert_eq!(answer(2), gone(Some(token(99).to_string())));
        assert_eq!(answer(3), renewed(true));
        assert_eq!(answer(4), gone(Some("(a value of another type)".into())));
        let Answer::Renewed { longer: Some(longer), .. } = answer(5) else { panic!("90 s") };
        assert!(longer > TTL);
        let for_ever = Some(Duration::MAX);
        assert_eq!(answer(6), Answer::Renewed { longer: for_ever, waited_for: false });
        for number in [0].into_iter().chain(7..60) {
            assert_eq!(answer(number), renewed(false), "{number}");
            let left = direct.server.pttl(&format!("lock:{number}")).unwrap();
            assert!((20_000..=30_500).contains(&left), "{number}: {left}");
        }
        assert!(direct.server.pttl("lock:7").unwrap() > 30_000, "not shortened");
        assert!(direct.server.pttl("lock:5").unwrap() > 60_000, "not shortened");
        assert_eq!(direct.server.run::<i64>("PTTL lock:6"), -1, "not given an end");
    }
}

#[test]
fn a_lock_in_a_slot_of_another_node_costs_the_others_nothing_and_is_asked_for_alone() {
    for mut direct in each() {
        load_scripts(&mut direct);
        direct.server.run::<()>("CONFIG SET cluster-require-full-coverage no");
        hold(&direct, 0..10, 5_000);
        let slot = direct.server.run::<u16>("CLUSTER KEYSLOT lock:3");
        direct.server.run::<()>(&format!("CLUSTER DELSLOTS {slot}"));
        let mut talk = Talk::with(found());
        for number in 0..10 {
            talk.ask(number as u64, renewal(number, TTL));
        }
        for number in 0..10 {
            talk.ask(10 + number as u64, release(number));
        }
        let answers = talk.finish(&mut direct);
        assert_eq!(talk.breaths[..2], [2, 2], "two for all, and two for the one");
        for (seq, answer) in answers {
            match seq {
                3 | 13 => assert!(answer.unwrap_err().what.contains("CLUSTERDOWN"), "{seq}"),
                0..10 => assert_eq!(answer, Ok(renewed(false)), "{seq}"),
                _ => assert_eq!(answer, Ok(Answer::Done), "{seq}"),
            }
        }
    }
}

#[test]
fn a_lock_whose_slot_has_moved_is_redirected_by_its_own_release() {
    let mut talk = with_node();
    release_each(&mut talk, 3);
    let shapes: Vec<_> = talk.flush().iter().map(shape).collect();
    assert_eq!(shapes, [("EVALSHA".into(), 3 + 2 * 3)]);
    talk.hear(Value::Array(vec![Value::Int(-2)]), &mut |_| true);
    let shapes: Vec<_> = talk.flush().iter().map(shape).collect();
    assert_eq!(shapes, [("EVALSHA".into(), 3 + 2)], "the lock alone: its slot may be half moved");
    for seq in [0, 2] {
        let done = talk.conversation.next_done();
        assert!(matches!(done, Some(Pulled::Done(it, Ok(Answer::Done))) if it == seq), "{done:?}");
    }
    talk.hear(error("MOVED 7 b:7001"), &mut |_| true);
    let redirected = talk.conversation.next_done();
    let Some(Pulled::Redirected(1, command, Redirect::Moved { slot: 7, .. })) = redirected else {
        panic!("{redirected:?}")
    };
    assert!(matches!(command.verb, Verb::Release { .. }));
    assert!(talk.conversation.next_done().is_none() && talk.flush().is_empty());
}

#[test]
fn each_lock_of_a_node_that_is_a_replica_by_now_is_redirected_by_its_own_command() {
    let mut talk = with_node();
    talk.ask(0, renewal(0, TTL));
    talk.ask(1, renewal(1, TTL));
    assert_eq!(talk.flush().len(), 1);
    talk.hear(error("READONLY You can't write against a read only replica."), &mut |_| true);
    assert_eq!(talk.flush().len(), 2);
    for seq in [0, 1] {
        talk.hear(error("MOVED 7 b:7001"), &mut |_| true);
        let pulled = talk.conversation.next_done();
        assert!(matches!(pulled, Some(Pulled::Redirected(it, ..)) if it == seq), "{pulled:?}");
    }
    assert!(talk.conversation.next_done().is_none(), "the connection is as good as before");
}

#[test]
fn a_node_that_refuses_such_scripts_is_sent_each_release() {
    let mut talk = with_node();
    for turn in 0..2 {
        release_each(&mut talk, 3);
        let sent = talk.flush();
        if turn == 0 {
            assert_eq!(sent.len(), 1);
            talk.hear(error("ERR Unexpected flag in script shebang"), &mut |_| true);
            assert_eq!(talk.flush().len(), 3);
        } else {
            assert_eq!(sent.len(), 3, "it is not tried again");
        }
    }
    let refuses = Found { cluster: true, crosses_slots: false, ..Found::default() };
    let mut talk = Talk::with(refuses);
    release_each(&mut talk, 3);
    assert_eq!(talk.flush().len(), 3, "it is not tried where loading them was refused");
}

#[test]
fn a_node_that_compares_and_deletes_is_sent_each_release_and_renewals_at_once() {
    let mut talk = Talk::with(Found { delete: Delete::DelIfEq, ..found() });
    release_each(&mut talk, 3);
    for number in 3..6 {
        talk.ask(number as u64, renewal(number, TTL));
    }
    let names: Vec<_> = talk.flush().iter().map(|cmd| shape(cmd).0).collect();
    assert_eq!(names, ["DELIFEQ", "DELIFEQ", "DELIFEQ", "EVALSHA"]);
}

#[test]
fn looks_of_waiters_for_one_lock_go_together_at_one_node_of_several_too() {
    let mut talk = with_node();
    for number in 0..3 {
        talk.ask(number as u64, look(number, PERMIT, true));
    }
    let sent: Vec<_> = talk.flush().iter().map(shape).collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let refusal = "MOVED 1 b:7000";
    talk.hear(error(refusal), &mut |_| true);
    assert_eq!(talk.flush().len(), 3, "each is told by itself where its lock is now");
}

#[test]
fn a_take_follows_the_release_of_its_own_lock_and_passes_those_of_others_in_other_slots() {
    for mut direct in each() {
        load_scripts(&mut direct);
        hold(&direct, 0..3, 5_000);
        let mut talk = Talk::with(found());
        release_each(&mut talk, 2);
        talk.ask(2, take(9, 9));
        talk.ask(3, take(1, 8));
        talk.ask(4, for_key(2, Verb::Check { token: token(2) }));
        let names: Vec<_> = talk.flush().iter().map(|cmd| shape(cmd).0).collect();
        assert_eq!(names, ["SET", "EVALSHA", "SET", "EVALSHA"]);
        let mut talk = Talk::with(found());
        release_each(&mut talk, 2);
        talk.ask(2, take(0, 8));
        talk.ask(3, take(1, 8));
        let answers = talk.finish(&mut direct);
        let held = Ok(Answer::Held { fence: None });
        assert_eq!((&answers[&2], &answers[&3]), (&held, &held), "they were released before");
    }
}
