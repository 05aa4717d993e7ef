mod cluster;
mod heirs;

use std::thread;
use std::time::{Duration, Instant};

use testbed::{eventually, holds_for};

use self::cluster::Cluster;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::engine::path::{LOOK_PAUSE, QueueEntry};
use crate::engine::tests::{PATIENCE, have_a_lease_linger, owe, release_of};
use crate::lock::Outcome;
use crate::store::Event;
use crate::store::wire::Redirect;
use crate::{LockError, LockState, Locks};

const TTL: Duration = Duration::from_millis(900);

fn three() -> (Cluster, Locks) {
    let cluster = Cluster::of(3);
    let locks = cluster.locks(Locks::builder().outage(PATIENCE));
    (cluster, locks)
}

#[test]
fn each_lock_goes_to_the_node_that_has_its_slot() {
    let (cluster, locks) = three();
    for node in 0..3 {
        let key = cluster.key_of(node);
        let guard = locks.mutex(&key).blocking_acquire().unwrap();
        assert_eq!(cluster.held(), std::slice::from_ref(&key));
        guard.blocking_release().unwrap();
        let log = std::mem::take(&mut cluster.nodes().log);
        assert!(log.iter().all(|(at, on, _)| *at == node && *on == key), "{log:?}");
    }
    assert!(cluster.held().is_empty());
    assert!(cluster.looks() <= 4, "once, and once for each subscription: {}", cluster.looks());
}

/// How often the map was read, once there is no reason to read it.
fn looks_at_rest(cluster: &Cluster) -> usize {
    let mut looks = cluster.looks();
    eventually(PATIENCE, "nobody reads the map", || {
        let before = std::mem::replace(&mut looks, cluster.looks());
        thread::sleep(LOOK_PAUSE * 3);
        before == looks && looks == cluster.looks()
    });
    looks
}

#[test]
fn the_map_is_read_again_when_a_subscription_begins_and_when_it_ends() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    let core = locks.link().core();
    let place = core.places.as_several().unwrap().named(&"node-0:1".into()).unwrap().id;
    // No message reported what changed before the subscription began.
    for hints_enabled in [false, true] {
        let before = looks_at_rest(&cluster);
        core.act(|work| core.receive(place, Event::Listening { hints_enabled }, work));
        eventually(PATIENCE, "the map is read again", || cluster.looks() > before);
    }
}

#[test]
fn a_map_that_is_disputed_is_read_again_until_the_nodes_agree() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    let before = looks_at_rest(&cluster);
    cluster.nodes().is_disputed = true;
    locks.link().core().look_soon();
    eventually(PATIENCE, "it is read more than once", || cluster.looks() > before + 2);
    cluster.nodes().is_disputed = false;
    looks_at_rest(&cluster);
}

const PAUSE: Duration = Duration::from_millis(100);

/// Takes and releases a lock on a thread of its own, for which no node is asked for now.
fn asks_and_waits(cluster: &Cluster, locks: &Locks, key: &str) -> thread::JoinHandle<()> {
    cluster.nodes().log.clear();
    let request = locks.mutex(key).wait(PATIENCE);
    let asked =
        thread::spawn(move || request.blocking_acquire().unwrap().blocking_release().unwrap());
    holds_for(PAUSE, "nobody is asked", || cluster.nodes().log.is_empty());
    asked
}

#[test]
fn a_try_is_not_told_that_a_token_has_the_lock_which_this_process_has_released_before() {
    let (cluster, locks) = three();
    let core = locks.link().core();
    for (is_moving, is_released) in [(false, true), (true, true), (false, false)] {
        let key = cluster.key_of(0);
        // A token of this process is there, and its release may be at any node.
        let token = locks.mutex(&key).ttl(PATIENCE * 6).blocking_acquire().unwrap().detach();
        if is_moving {
            cluster.begin_move(&key, 1);
        }
        let (mut reap, _) = release_of(&key);
        reap.begin(&core.pending, || core.number());
        cluster.nodes().log.clear();
        let since = Instant::now();
        let asking = thread::spawn({
            let request = locks.mutex(&key);
            move || request.blocking_try_acquire().unwrap().map(|guard| guard.blocking_release())
        });
        holds_for(PAUSE, "it gets no answer", || !asking.is_finished());
        let asked = || cluster.nodes().log.len();
        eventually(PATIENCE, "it asks again", || asked() >= 2);
        let (asked, most) = (asked(), since.elapsed().as_millis() / 10 + 2);
        assert!(asked as u128 <= most, "every 10 ms: {asked}, and not {most}");
        let released = || cluster.locks(Locks::builder()).mutex(&key).blocking_adopt(token.clone());
        if is_released {
            released().unwrap().blocking_release().unwrap();
        }
        drop(reap.give_up());
        assert_eq!(asking.join().unwrap().is_some(), is_released, "moving: {is_moving}");
        if !is_released {
            released().unwrap().blocking_release().unwrap();
        }
    }
}

#[test]
fn who_releases_gets_an_error_when_the_engine_ends_before_the_release_has_its_next_place() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    let core = locks.link().core();
    // A reader has taken these outcomes and not handed them over when the shutdown stops waiting.
    let settled = [(); 3].map(|()| release_of(&key));
    locks.blocking_shutdown();
    let now = Moment::now();
    for (number, (reap, mut confirmed)) in settled.into_iter().enumerate() {
        core.act(|work| match number {
            0 => {
                let what = Fault::new(FaultClass::Unknown, "the connection broke");
                core.reaped(reap, Outcome::Unknown(what), now, work);
            }
            1 => core.redirect(QueueEntry::reap(reap, now).redirected(None, None), work),
            _ => {
                let to = Redirect::Ask { to: "node-9:1".into() };
                core.redirect(QueueEntry::reap(reap, now).redirected(None, Some(to)), work);
            }
        });
        let outcome =
            confirmed.try_recv().unwrap_or_else(|_| panic!("{number}: its caller gets no outcome"));
        assert!(outcome.is_err(), "{number}");
    }
}

#[test]
fn a_release_that_is_owed_goes_to_the_node_of_its_own_key() {
    let (cluster, locks) = three();
    let (first, other) = (cluster.key_of(0), cluster.key_of(2));
    locks.mutex(&first).blocking_acquire().unwrap().blocking_release().unwrap();
    let later = Moment::now().after(PATIENCE);
    owe(locks.link().core(), later, &other);
    cluster.nodes().log.clear();
    let both = locks.all([&first, &other]).blocking_acquire().unwrap();
    let log = cluster.nodes().log.clone();
    let at = |node| log.iter().filter(move |entry| entry.0 == node).collect::<Vec<_>>();
    assert!(at(0).iter().all(|(_, key, _)| *key == first), "{log:?}");
    let kinds: Vec<_> = at(2).iter().map(|(_, key, verb)| (&**key, *verb)).collect();
    assert_eq!(kinds.first(), Some(&(&*other, "release")), "{log:?}");
    both.blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn a_slot_that_moved_is_followed_and_the_map_is_read_again() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    let guard = locks.mutex(&key).ttl(TTL).blocking_acquire().unwrap();
    let before = looks_at_rest(&cluster);
    cluster.move_slot(&key, 2);
    holds_for(TTL * 2, "it is renewed at the new owner", || guard.state() == LockState::Held);
    guard.blocking_release().unwrap();
    assert!(cluster.nodes().log.iter().any(|entry| *entry == (2, key.clone(), "renew")));
    eventually(PATIENCE, "the map is read again", || cluster.looks() > before);
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn g9_a_slot_that_stays_half_moved_keeps_who_holds_and_lets_others_in() {
    let (cluster, locks) = three();
    let key = cluster.key_of(1);
    let guard = locks.mutex(&key).ttl(TTL).blocking_acquire().unwrap();
    cluster.begin_move(&key, 2);
    holds_for(TTL * 2, "it is renewed where it is", || guard.state() == LockState::Held);
    guard.blocking_release().unwrap();
    cluster.nodes().log.clear();
    let guard = locks.mutex(&key).ttl(TTL).blocking_acquire().unwrap();
    assert!(cluster.nodes().log.iter().all(|(node, _, _)| *node == 2), "asked where it goes");
    guard.blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn nodes_that_do_not_agree_for_long_are_asked_ever_later_and_that_is_reported() {
    let (cluster, _) = three();
    let limit = Duration::from_secs(3);
    let locks = cluster.locks(Locks::builder().outage(limit));
    let (key, other) = (cluster.key_of(0), cluster.key_of(1));
    let held = locks.mutex(&key).ttl(PATIENCE * 6).blocking_acquire().unwrap();
    cluster.dispute(&key, true);
    let asked = Instant::now();
    let error = held.blocking_verify().unwrap_err();
    assert!(error.to_string().contains("do not agree"), "{error}");
    assert_ne!(held.state(), LockState::Lost, "nobody said that it is not ours");
    drop(held);
    let error = locks.mutex(&key).blocking_acquire().unwrap_err();
    assert!(matches!(&error, LockError::Backend { source, .. } if source.is_retryable()));
    assert!(error.to_string().contains("do not agree"), "{error}");
    assert!(asked.elapsed() < limit * 3, "{:?}", asked.elapsed());
    let redirects = cluster.nodes().redirects;
    // Six for each try; 50 ms apart they would be 360, and those of the release as many.
    assert!(redirects < 160, "{redirects}");
    locks.mutex(&other).blocking_acquire().unwrap().blocking_release().unwrap();
    cluster.dispute(&key, false);
    locks.mutex(&key).wait(PATIENCE).blocking_acquire().unwrap().blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn g14_a_node_that_does_not_answer_delays_its_own_locks_alone() {
    let (cluster, locks) = three();
    let (sick, well) = (cluster.key_of(0), cluster.key_of(1));
    for key in [&sick, &well] {
        locks.mutex(key).blocking_acquire().unwrap().blocking_release().unwrap();
    }
    cluster.set_silent(0, true);
    let waiting = thread::spawn({
        let request = locks.mutex(&sick).wait(PATIENCE);
        move || request.blocking_acquire().map(|guard| guard.blocking_release())
    });
    let since = Instant::now();
    for _ in 0..20 {
        locks.mutex(&well).blocking_acquire().unwrap().blocking_release().unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    cluster.set_silent(0, false);
    waiting.join().unwrap().unwrap().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn what_waits_for_a_node_goes_where_the_next_map_says() {
    let cluster = Cluster::of(3);
    let limit = Duration::from_secs(60);
    let locks = cluster.locks(Locks::builder().command_timeout(limit).outage(limit));
    let (key, other) = (cluster.key_of(0), cluster.key_of(1));
    let guard = locks.mutex(&key).renew(false).blocking_acquire().unwrap();
    locks.mutex(&other).blocking_acquire().unwrap().blocking_release().unwrap();
    let place = locks.link().core().places.as_several().unwrap().named(&"node-0:1".into()).unwrap();
    cluster.vanish(0);
    eventually(PATIENCE, "it is noticed", || place.path.traffic().epoch().is_none());
    drop(guard);
    eventually(PATIENCE, "it waits", || place.path.traffic().has_questions());
    for moved in [&key, &other] {
        cluster.move_slot(moved, 2);
    }
    // A node that contradicts the map has it read again.
    locks.mutex(&other).blocking_acquire().unwrap().blocking_release().unwrap();
    eventually(limit / 2, "it is released", || cluster.held().is_empty());
    assert!(cluster.nodes().log.contains(&(2, key, "release")));
}

#[test]
fn g13_an_answer_that_comes_after_more_than_a_second_starts_no_lease() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    locks.mutex(&key).blocking_acquire().unwrap().blocking_release().unwrap();
    cluster.set_silent(0, true);
    let waiting = thread::spawn({
        let request = locks.mutex(&key).wait(PATIENCE);
        move || request.blocking_acquire().map(|guard| guard.blocking_release())
    });
    let executed = || cluster.nodes().log.iter().filter(|(_, _, verb)| *verb == "acquire").count();
    eventually(PATIENCE, "it is on its way", || executed() >= 2);
    thread::sleep(Duration::from_millis(1_200));
    // Another node has taken its place, and what this one says is worth nothing.
    cluster.fail_over(0, 1);
    cluster.set_silent(0, false);
    waiting.join().unwrap().unwrap().unwrap();
    let log = &cluster.nodes().log;
    assert!(log.iter().any(|entry| *entry == (1, key.clone(), "acquire")), "{log:?}");
}

#[test]
fn a_node_that_is_gone_is_replaced_by_the_one_that_the_map_names() {
    let (cluster, locks) = three();
    let key = cluster.key_of(2);
    let guard = locks.mutex(&key).ttl(PATIENCE).blocking_acquire().unwrap();
    cluster.set_down(2, true);
    cluster.fail_over(2, 0);
    let renewed = || cluster.nodes().log.iter().any(|entry| *entry == (0, key.clone(), "renew"));
    // At once, not when a renewal is due.
    eventually(Duration::from_secs(2), "who holds renews at the new owner", renewed);
    assert_eq!(guard.state(), LockState::Held);
    guard.blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

/// Another node has the slot of a key whose lease lingers.
fn ends_what_lingers(replace: impl FnOnce(&Cluster, &str, &Locks)) {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    have_a_lease_linger(&locks, &key);
    assert_eq!(cluster.held(), std::slice::from_ref(&key));
    cluster.nodes().log.clear();
    replace(&cluster, &key, &locks);
    let asked = |node, verb| cluster.nodes().log.iter().any(|it| *it == (node, key.clone(), verb));
    // At once, and not when a renewal is due.
    eventually(PATIENCE / 2, "it is given back at the new owner", || asked(2, "release"));
    locks.mutex(&key).wait(PATIENCE).blocking_acquire().unwrap().blocking_release().unwrap();
    assert!(asked(2, "acquire"), "the new owner was asked: {:?}", cluster.nodes().log);
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn lg28_an_idle_lease_ends_when_its_node_is_replaced() {
    ends_what_lingers(|cluster, _, _| {
        cluster.set_down(0, true);
        cluster.fail_over(0, 2);
    });
}

#[test]
fn lg28_an_idle_lease_ends_when_its_node_vanishes_and_is_replaced_later() {
    ends_what_lingers(|cluster, key, locks| {
        cluster.vanish(0);
        let is_given_up = || locks.link().views(&["lock:", key].concat()).is_empty();
        eventually(PATIENCE / 2, "nobody relies on it", is_given_up);
        cluster.fail_over(0, 2);
    });
}

#[test]
fn lg28_an_idle_lease_ends_when_its_slot_moves() {
    ends_what_lingers(|cluster, key, locks| {
        cluster.move_slot(key, 2);
        locks.link().core().look_soon();
    });
}

#[test]
fn who_holds_several_keys_renews_all_when_any_of_them_has_another_owner() {
    for gone in 0..3 {
        let (cluster, locks) = three();
        let keys: Vec<_> = (0..3).map(|node| cluster.key_of(node)).collect();
        let guard = locks.all(&keys).ttl(PATIENCE * 6).blocking_acquire().unwrap();
        cluster.set_down(gone, true);
        let successor = (gone + 1) % 3;
        cluster.fail_over(gone, successor);
        let renewal = (successor, keys[gone].clone(), "renew");
        eventually(Duration::from_secs(2), "it is renewed there", || {
            cluster.nodes().log.contains(&renewal)
        });
        guard.blocking_release().unwrap();
        eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
    }
}

#[test]
fn a_waiter_is_notified_by_the_node_that_has_the_lock() {
    let (cluster, locks) = three();
    let other = cluster.locks(Locks::builder());
    for node in 0..3 {
        let key = cluster.key_of(node);
        let guard = locks.mutex(&key).blocking_acquire().unwrap();
        let waiting = thread::spawn({
            let request = other.mutex(&key).wait(PATIENCE);
            move || request.blocking_acquire().map(|guard| guard.blocking_release())
        });
        eventually(PATIENCE, "it waits", || {
            cluster.nodes().log.iter().filter(|(_, on, _)| *on == key).count() >= 3
        });
        guard.blocking_release().unwrap();
        waiting.join().unwrap().unwrap().unwrap();
    }
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn a_lock_of_keys_at_several_nodes_is_had_whole_or_not_at_all() {
    let (cluster, locks) = three();
    let keys: Vec<_> = (0..3).map(|node| cluster.key_of(node)).collect();
    let all = || locks.all(&keys).ttl(TTL);
    let guard = all().blocking_acquire().unwrap();
    assert_eq!(cluster.held().len(), 3);
    holds_for(TTL * 2, "all are renewed", || guard.state() == LockState::Held);
    for key in &keys {
        assert!(locks.mutex(key).no_wait().blocking_acquire().unwrap_err().is_busy());
    }
    guard.blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
    let one = locks.mutex(&keys[1]).blocking_acquire().unwrap();
    assert!(all().no_wait().blocking_acquire().unwrap_err().is_busy());
    eventually(PATIENCE, "the others are given back", || cluster.held() == [keys[1].clone()]);
    cluster.move_slot(&keys[0], 2);
    one.blocking_release().unwrap();
    all().fenced().blocking_acquire().unwrap().blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
}

#[test]
fn without_any_node_it_fails_within_the_time_allowed() {
    let (cluster, _) = three();
    for node in 0..3 {
        cluster.set_down(node, true);
    }
    let locks = cluster.locks(Locks::builder().outage(Duration::from_millis(300)));
    let error = locks.mutex("a").blocking_acquire().unwrap_err();
    assert!(error.to_string().contains("no node can be reached"), "{error}");
    for node in 0..3 {
        cluster.set_down(node, false);
    }
    let recovered = || locks.mutex("a").blocking_acquire().is_ok();
    eventually(PATIENCE, "it recovers", recovered);
}

#[test]
fn the_answer_of_one_node_says_nothing_of_a_lock_that_needs_others_as_well() {
    let (cluster, locks) = three();
    let keys: Vec<_> = (0..2).map(|node| cluster.key_of(node)).collect();
    let core = locks.link().core();
    let held_together = locks.all(&keys).blocking_acquire().unwrap();
    let together = core.table.ids();
    let held_alone = locks.read("alone").blocking_acquire().unwrap();
    for id in core.table.ids() {
        let mut answered = Moment::START;
        core.act(|work| core.step(&id, work, |_, env| answered = env.answered));
        assert_eq!(answered == Moment::START, together.contains(&id), "{id:?}");
    }
    held_together.blocking_release().unwrap();
    held_alone.blocking_release().unwrap();
}
