//! What is asked for a key, and its releases elsewhere.

use std::thread;
use std::time::Duration;

use testbed::{eventually, holds_for};

use super::cluster::Cluster;
use super::{TTL, three};
use crate::Locks;
use crate::domain::clock::Moment;
use crate::domain::kind::Kind;
use crate::engine::path::QueueEntry;
use crate::engine::tests::{PATIENCE, owed, release_of};
use crate::store::redirect::Redirect;
use crate::store::{Command, Verb};

const PAUSE: Duration = Duration::from_millis(100);

/// Takes and releases a lock on a thread of its own, for which no node is asked for now.
pub(super) fn asks_and_waits(
    cluster: &Cluster,
    locks: &Locks,
    key: &str,
) -> thread::JoinHandle<()> {
    cluster.nodes().log.clear();
    let request = locks.mutex(key).wait(PATIENCE);
    let asked =
        thread::spawn(move || request.blocking_acquire().unwrap().blocking_release().unwrap());
    holds_for(PAUSE, "nobody is asked", || cluster.nodes().log.is_empty());
    asked
}

#[test]
fn whoever_asks_for_a_key_waits_while_its_release_is_at_another_node_or_between_two() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    let core = locks.link().core();
    let place = |name: &str| core.places.named(&name.into()).unwrap().id;
    for at in [Some(place("node-1:1")), None] {
        let (reap, _) = release_of(&key);
        core.reaper().goes_to(reap.names(), reap.attempt().wire(), at);
        let asked = asks_and_waits(&cluster, &locks, &key);
        core.act(|_| core.reaper().stops(&reap));
        asked.join().unwrap();
        drop(reap.give_up());
    }
    let (reap, _) = release_of(&key);
    core.reaper().goes_to(reap.names(), reap.attempt().wire(), Some(place("node-0:1")));
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    core.act(|_| core.reaper().stops(&reap));
    drop(reap.give_up());
    assert!(core.reaper().is_empty(), "nothing is noted of what was answered");
}

#[test]
fn where_a_slot_is_on_its_way_a_question_waits_until_the_release_before_it_is_answered() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    for key in [&key, &cluster.key_of(1)] {
        locks.mutex(key).blocking_acquire().unwrap().blocking_release().unwrap();
    }
    cluster.begin_move(&key, 1);
    let core = locks.link().core();
    let to = core.places.named(&"node-1:1".into()).unwrap().id;
    cluster.nodes().log.clear();
    let (reap, _) = release_of(&key);
    core.reaper().goes_to(reap.names(), reap.attempt().wire(), Some(to));
    let verb = Verb::Take { token: "rl1.0.m.0.".into(), ttl: Some(TTL) };
    let (names, kind) = (reap.names().clone(), Kind::Mutex);
    let take = QueueEntry::message(Command { names, kind, verb, timeout: TTL }, Moment::now());
    let redirect = Redirect::Ask { to: "node-1:1".into() };
    core.act(|work| core.redirect(take, Some(redirect), work));
    holds_for(PAUSE, "nobody is asked", || cluster.nodes().log.is_empty());
    core.act(|_| core.reaper().stops(&reap));
    drop(reap.give_up());
    eventually(PATIENCE, "it is asked", || cluster.nodes().log == [(1, key.clone(), "acquire")]);
}

#[test]
fn whoever_waits_for_one_release_does_not_hasten_another_of_the_same_key() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    let core = locks.link().core();
    let (reap, _) = release_of(&key);
    core.reaper().goes_to(reap.names(), reap.attempt().wire(), None);
    let asked = asks_and_waits(&cluster, &locks, &key);
    let later = Moment::now().after(PATIENCE);
    core.act(|_| core.reaper().add(later, owed(&key)));
    holds_for(PAUSE, "its pause is kept", || cluster.nodes().log.is_empty());
    core.act(|_| core.reaper().stops(&reap));
    asked.join().unwrap();
    drop(reap.give_up());
    let log = cluster.nodes().log.clone();
    assert!(matches!(log.first(), Some((0, _, "release"))), "{log:?}");
}
