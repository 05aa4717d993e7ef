//! What is released again when another node has taken the place of one.

use super::*;
use crate::engine::lifecycle::LifeStage;

#[test]
fn g8_what_the_heir_of_a_node_never_heard_of_is_released_again() {
    for is_all in [false, true] {
        let (cluster, locks) = three();
        let (key, other) = (cluster.key_of(0), cluster.key_of(1));
        let request = if is_all { locks.all([&key, &other]) } else { locks.mutex(&key) };
        let guard = request.ttl(PATIENCE * 6).blocking_acquire().unwrap();
        cluster.cut_off(0);
        guard.blocking_release().unwrap();
        eventually(PATIENCE, "the rest is released", || cluster.held() == [key.clone()]);
        cluster.set_down(0, true);
        cluster.fail_over(0, 2);
        eventually(PATIENCE, "nothing is left", || cluster.held().is_empty());
        let start = Instant::now();
        locks.blocking_shutdown();
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}

#[test]
fn what_nodes_answered_that_have_not_failed_is_not_released_again() {
    let (cluster, locks) = three();
    let keys: Vec<_> = (0..3).map(|node| cluster.key_of(node)).collect();
    for key in &keys {
        let guard = locks.mutex(key).ttl(PATIENCE * 6).blocking_acquire().unwrap();
        guard.blocking_release().unwrap();
    }
    cluster.nodes().log.clear();
    cluster.set_down(0, true);
    cluster.fail_over(0, 2);
    let released = || {
        let log = cluster.nodes().log.clone();
        log.into_iter().filter(|(.., verb)| *verb == "release").map(|(_, key, _)| key)
    };
    eventually(PATIENCE, "the new primary gets the release", || {
        released().any(|key| key == keys[0])
    });
    // Answered by the others behind whatever they were sent before.
    for key in &keys[1..] {
        let _token = locks.mutex(key).blocking_acquire().unwrap().detach();
    }
    assert_eq!(released().collect::<Vec<_>>(), keys[..1]);
}

/// Waits until the first node's connection is known to have ended.
fn until_its_end_is_noticed(locks: &Locks) {
    let failed =
        locks.link().core().places.as_several().unwrap().named(&"node-0:1".into()).unwrap();
    eventually(PATIENCE, "its end is noticed", || failed.path.traffic().epoch().is_none());
}

#[test]
fn who_waits_for_a_lock_of_a_node_that_failed_waits_for_its_last_releases_only() {
    let (cluster, locks) = three();
    let key = cluster.key_of(0);
    for _ in 0..40 {
        let guard = locks.mutex(&key).ttl(PATIENCE * 6).blocking_acquire().unwrap();
        guard.blocking_release().unwrap();
    }
    cluster.set_down(0, true);
    until_its_end_is_noticed(&locks);
    let asked = asks_and_waits(&cluster, &locks, &key);
    cluster.fail_over(0, 2);
    asked.join().unwrap();
    let releases =
        |log: &[(usize, String, &str)]| log.iter().filter(|(.., verb)| *verb == "release").count();
    eventually(PATIENCE, "all are repeated", || releases(&cluster.nodes().log) == 41);
    let log = cluster.nodes().log.clone();
    let asked = log.iter().position(|(.., verb)| *verb != "release").unwrap();
    assert_eq!(releases(&log[..asked]), 32, "{log:?}");
}

#[test]
fn a_shutdown_sends_the_releases_that_were_to_be_repeated_later() {
    for is_shut_before in [false, true] {
        let (cluster, locks) = three();
        let key = cluster.key_of(0);
        let guard = || locks.mutex(&key).ttl(PATIENCE * 6).blocking_acquire().unwrap();
        for _ in 0..480 {
            guard().blocking_release().unwrap();
        }
        let held = is_shut_before.then(guard);
        cluster.nodes().log.clear();
        let is_repeated = |log: &[(usize, String, &str)], count| {
            log.iter().filter(|(.., verb)| *verb == "release").count() >= count
        };
        cluster.set_down(0, true);
        // A shutdown waits for no fail-over once its own releases have been tried.
        until_its_end_is_noticed(&locks);
        thread::scope(|scope| {
            if is_shut_before {
                scope.spawn(|| locks.blocking_shutdown());
                let core = locks.link().core();
                eventually(PATIENCE, "it has begun", || {
                    matches!(core.life.stage(), LifeStage::Closing(Some(_)))
                });
            }
            cluster.fail_over(0, 2);
            if !is_shut_before {
                let begins = || is_repeated(&cluster.nodes().log, 32);
                eventually(PATIENCE, "the last ones are repeated", begins);
                locks.blocking_shutdown();
            }
        });
        drop(held);
        let log = cluster.nodes().log.clone();
        assert!(is_repeated(&log, 480), "{is_shut_before}: nobody else repeats them");
    }
}
