//! What nodes of a quorum may do to locks.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, Vote};
use testbed::{ClockShim, Server, Turns, eventually, holds_for};

use crate::arena::{PATIENCE, ms, take};
use crate::is_held;
use crate::quorum::{Nodes, votes};

#[test]
fn l14_a_node_that_restarted_empty_does_not_vote_while_leases_run_that_it_forgot() {
    let nodes = Nodes::start(3);
    let patient = |locks: redis_locks::LocksBuilder| locks.rejoin(ms(3_000)).ttl(ms(1_500));
    let locks = patient(nodes.locks()).open().unwrap();
    let direct = nodes.servers.iter().map(Server::url);
    let other = patient(Locks::builder().quorum(direct)).outage(ms(200)).open().unwrap();
    let error = other.mutex("young").no_wait().blocking_acquire().map(drop).unwrap_err();
    assert!(votes(&error).contains(&Vote::Young), "{error}");
    assert!(error.to_string().contains("young"), "{error}");
    let all_vote = |locks: &Locks| {
        locks.blocking_status("k").is_ok_and(|it| it.server.nodes.iter().all(|node| node.votes))
    };
    eventually(PATIENCE, "all vote", || all_vote(&locks) && all_vote(&other));
    // The holder has two nodes, of which one forgets it; the third one has never known it.
    nodes.proxies[2].refuse();
    nodes.proxies[2].kill_all();
    let guard = take(locks.mutex("k").renew(false));
    nodes.servers[0].kill9();
    nodes.servers[0].restart();
    while is_held(&guard) {
        let outcome = other.mutex("k").no_wait().blocking_acquire();
        assert!(outcome.is_err() || !is_held(&guard), "two hold it");
    }
    drop(guard);
    eventually(PATIENCE, "the next one gets it", || other.mutex("k").blocking_acquire().is_ok());
}

/// A service has longer leases than the other client knows of. Of the holder's two nodes one forgets it, the third
/// has never known it.
#[test]
fn a_client_with_a_shorter_rejoin_goes_by_the_longest() {
    let clocks: Option<Vec<_>> = (0..3).map(|_| ClockShim::new()).collect();
    let Some(clocks) = clocks else { testbed::skip!("there is no C compiler") };
    let start = |clock| Server::builder().clock(clock).start();
    let nodes = Nodes::of(clocks.iter().map(start).collect());
    // By their clocks they have all run for an hour.
    clocks.iter().for_each(|clock| clock.set(3_600.0));
    let hosts: Vec<_> =
        nodes.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redis-quorum://{}?rejoin=1s", hosts.join(","));
    let short = || Locks::builder().url(&url).ttl(ms(1_000)).outage(ms(200)).open().unwrap();
    let other = short();
    take(other.mutex("other")).blocking_release().unwrap();
    let service = nodes.locks().rejoin(ms(600_000)).ttl(ms(300_000)).open().unwrap();
    take(service.mutex("other")).blocking_release().unwrap();
    nodes.proxies[2].refuse();
    nodes.proxies[2].kill_all();
    let guard = take(service.mutex("k"));
    nodes.servers[0].kill9();
    clocks[0].set(0.0);
    nodes.servers[0].restart();
    let fails = |locks: &Locks| match locks.mutex("k").no_wait().blocking_acquire() {
        Err(error) => !matches!(error, LockError::InvalidConfig { .. }) || panic!("{error}"),
        Ok(second) => panic!("{second:?} beside {guard:?}"),
    };
    holds_for(ms(4_000), "one holds it", || fails(&other) && fails(&short()));
    nodes.servers[1].kill9();
    let all_fail = || fails(&other) && fails(&short());
    holds_for(ms(3_000), "also without the other node that has it", all_fail);
    drop(guard);
}

#[test]
fn l15_a_node_whose_wall_clock_makes_it_look_old_is_young_to_those_who_saw_it_start() {
    let Some(clock) = ClockShim::new() else { testbed::skip!("there is no C compiler") };
    let nodes =
        Nodes::of(vec![Server::builder().clock(&clock).start(), Server::start(), Server::start()]);
    let locks = nodes.locks().rejoin(ms(3_000)).ttl(ms(1_000)).open().unwrap();
    let votes = || {
        let status = locks.blocking_status("k");
        status.map(|it| it.server.nodes.iter().map(|it| it.votes).collect::<Vec<_>>())
    };
    eventually(PATIENCE, "all vote", || votes().is_ok_and(|all| all == [true; 3]));
    nodes.servers[0].kill9();
    clock.set(3_600.0);
    nodes.servers[0].restart();
    // As soon as a server runs, the clock goes on, and it says that it has run for long.
    let back = Instant::now();
    let is_linked = || {
        let status = locks.blocking_status("k").unwrap();
        let trouble = status.server.nodes[0].trouble.as_deref();
        trouble.is_none_or(|what| what.contains("young"))
    };
    eventually(PATIENCE, "it is connected to", is_linked);
    assert_eq!(votes().unwrap(), [false, true, true]);
    eventually(PATIENCE, "it votes in time", || votes().is_ok_and(|all| all == [true; 3]));
    assert!(back.elapsed() > ms(2_500), "it voted after {:?}", back.elapsed());
}

#[test]
fn a_renewal_brings_the_lock_back_to_a_node_and_counts_it_from_then_on() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    let guard = take(locks.mutex("k").ttl(ms(1_500)));
    for at in [0, 1, 2, 0] {
        eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
        nodes.servers[at].run::<()>("FLUSHALL");
        assert!(is_held(&guard));
    }
    eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
    let token = guard.token().to_string();
    for server in &nodes.servers {
        assert!(server.get("lock:k").unwrap().starts_with(&token));
    }
    guard.blocking_release().unwrap();
    nodes.assert_clean();
}

#[test]
fn a_node_that_is_back_gets_the_locks_at_once() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().ttl(ms(60_000)).open().unwrap();
    let guard = take(locks.mutex("k"));
    let write = take(locks.write("w"));
    eventually(PATIENCE, "all have them", || nodes.having("lock:k") + nodes.having("lock:w") == 6);
    let read = write.blocking_downgrade().unwrap();
    for server in &nodes.servers {
        server.kill9();
        server.restart();
        eventually(ms(5_000), "it has them", || server.exists("lock:k") && server.exists("lock:w"));
    }
    assert!(is_held(&guard) && is_held(&read));
    take(locks.read("w")).blocking_release().unwrap();
    assert!(locks.write("w").blocking_try_acquire().unwrap().is_none());
    read.blocking_release().unwrap();
    guard.blocking_release().unwrap();
    nodes.assert_clean();
}

#[test]
fn a_node_that_never_knew_the_writer_gets_the_reader_that_it_became() {
    let nodes = Nodes::start(3);
    nodes.proxies[2].refuse();
    let (locks, other) = (nodes.locks().open().unwrap(), nodes.locks().open().unwrap());
    let write = take(locks.write("w"));
    let read = write.blocking_downgrade().unwrap();
    nodes.proxies[2].pass();
    eventually(PATIENCE, "all have it", || nodes.having("lock:w") == 3);
    // Two readers fit together on each of the nodes.
    let second = take(other.read("w"));
    let readers = |server: &Server| server.run::<Vec<String>>("ZRANGE lock:w 0 -1");
    let all_read = || nodes.servers.iter().all(|it| readers(it).len() == 2);
    eventually(PATIENCE, "each node has both", all_read);
    second.blocking_release().unwrap();
    read.blocking_release().unwrap();
    nodes.assert_clean();
}

#[test]
fn a_node_that_missed_a_downgrade_lets_readers_in_when_it_is_back() {
    let nodes = Nodes::start(3);
    let (locks, other) = (nodes.locks().open().unwrap(), nodes.locks().open().unwrap());
    let write = take(locks.write("w").ttl(ms(900)));
    eventually(PATIENCE, "all have it", || nodes.having("lock:w") == 3);
    nodes.proxies[2].refuse();
    nodes.proxies[2].kill_all();
    let read = write.blocking_downgrade().unwrap();
    let holders = || nodes.servers[2].run::<Vec<String>>("ZRANGE lock:w 0 -1");
    assert!(holders()[0].starts_with("w:"), "it has not heard of it: {:?}", holders());
    nodes.proxies[2].pass();
    eventually(ms(5_000), "it has", || holders().iter().any(|it| it.starts_with("r:")));
    // So it counts for the next reader, although another node is gone by now.
    nodes.servers[0].kill9();
    take(other.read("w")).blocking_release().unwrap();
    read.blocking_release().unwrap();
}

#[test]
fn a_reader_that_was_a_writer_is_adopted_though_a_node_missed_that() {
    let nodes = Nodes::start(3);
    let urls = nodes.servers.iter().map(Server::url);
    let other = Locks::builder().quorum(urls).rejoin(Duration::ZERO).ttl(ms(3_000)).open().unwrap();
    let write = take(nodes.locks().open().unwrap().write("w"));
    eventually(PATIENCE, "all have it", || nodes.having("lock:w") == 3);
    nodes.proxies[2].refuse();
    nodes.proxies[2].kill_all();
    let token = write.blocking_downgrade().unwrap().detach();
    let adopted = other.read("w").blocking_adopt(token).unwrap();
    take(other.read("w")).blocking_release().unwrap();
    adopted.blocking_release().unwrap();
}

#[test]
fn l17_a_lock_that_a_majority_has_lost_is_lost_and_is_not_brought_back() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    let guard = take(locks.mutex("k").ttl(ms(900)));
    eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
    nodes.servers[0].run::<()>("FLUSHALL");
    nodes.servers[1].run::<()>("FLUSHALL");
    eventually(ms(1_000), "it is lost", || !is_held(&guard));
    assert!(guard.blocking_release().unwrap_err().is_lost());
    eventually(PATIENCE, "nothing is left", || nodes.having("lock:k") == 0);
    holds_for(ms(1_000), "nothing comes back", || nodes.having("lock:k") == 0);
}

#[test]
fn l18_a_repair_that_arrives_after_the_release_leaves_nothing() {
    for breaks in [false, true] {
        let nodes = Nodes::start(3);
        let locks = nodes.locks().open().unwrap();
        let guard = take(locks.mutex("k").ttl(ms(1_200)));
        eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
        nodes.servers[0].run::<()>("FLUSHALL");
        // A renewal after a third of the lease brings it back, and is on its way for this long.
        nodes.proxies[0].delay_up(ms(800));
        thread::sleep(ms(700));
        if breaks {
            nodes.proxies[0].hole_down();
            guard.blocking_release().unwrap();
            nodes.proxies[0].kill_all();
            nodes.proxies[0].pass();
        } else {
            guard.blocking_release().unwrap();
        }
        nodes.assert_clean();
    }
}

#[test]
fn l16_newcomers_that_split_the_votes_do_not_keep_each_other_from_it() {
    let nodes = Nodes::start(3);
    let managers: Vec<_> = (0..3).map(|_| nodes.locks().open().unwrap()).collect();
    managers.iter().for_each(|locks| take(locks.mutex("warm")).blocking_release().unwrap());
    for number in 0..150 {
        let key = format!("k{number}");
        let mut turns = Turns::of("three have it one after the other");
        while turns.go_on() {
            let start = Instant::now();
            thread::scope(|scope| {
                for locks in &managers {
                    scope.spawn(|| take(locks.mutex(key.as_str())).blocking_release().unwrap());
                }
            });
            turns.must_be_below(ms(2_500), start.elapsed());
        }
    }
    nodes.assert_clean();
}

#[test]
fn l20_a_fencing_number_is_known_to_a_majority_before_its_holder_begins() {
    let Some(ahead) = ClockShim::new() else { testbed::skip!("there is no C compiler") };
    ahead.set(100.0);
    let nodes =
        Nodes::of(vec![Server::builder().clock(&ahead).start(), Server::start(), Server::start()]);
    let locks = nodes.locks().open().unwrap();
    let fence = || {
        let guard = take(locks.mutex("k").fenced());
        let fence = guard.fence().unwrap();
        guard.blocking_release().unwrap();
        fence
    };
    let first = (0..20).map(|_| fence()).collect::<Vec<_>>();
    assert!(first.is_sorted_by(|one, other| one < other), "{first:?}");
    nodes.servers[0].kill9();
    let next = fence();
    assert!(first.last().unwrap() < &next, "{first:?}, then {next}");
    for kind in [locks.write("w").fenced(), locks.all(["a", "b"]).fenced()] {
        let numbers: Vec<_> = (0..3)
            .map(|_| {
                let guard = take(kind.clone());
                let fence = guard.fence().unwrap();
                guard.blocking_release().unwrap();
                fence
            })
            .collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    }
}

/// A node that votes late has a number of its own, which stands on no majority.
#[test]
fn l20_an_adopter_has_a_number_between_those_of_the_giver_and_the_next_holder() {
    for offset in [-100.0, 100.0] {
        let Some(clock) = ClockShim::new() else { testbed::skip!("there is no C compiler") };
        clock.set(offset);
        let odd = Server::builder().clock(&clock).start();
        let nodes = Nodes::of(vec![Server::start(), Server::start(), odd]);
        let locks = nodes.locks().open().unwrap();
        take(locks.mutex("first")).blocking_release().unwrap();
        eventually(PATIENCE, "all can be asked", || {
            locks.blocking_server_info().unwrap().nodes.iter().all(|node| node.votes)
        });
        nodes.proxies[2].delay_up(ms(200));
        let given = take(locks.mutex("k").fenced());
        eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
        nodes.proxies[2].pass();
        let (first, token) = (given.fence().unwrap(), given.detach());
        let heirs = nodes.locks().open().unwrap();
        let adopted = heirs.mutex("k").blocking_adopt(token).unwrap();
        let second = adopted.fence().unwrap();
        assert!(first <= second, "{offset}: {first}, then {second}");
        nodes.proxies[2].refuse();
        nodes.proxies[2].kill_all();
        adopted.blocking_release().unwrap();
        let third = take(locks.mutex("k").fenced()).fence().unwrap();
        assert!(second < third, "{offset}: {second}, then {third}");
    }
}

#[test]
fn a_release_notifies_the_waiter() {
    let nodes = Nodes::start(3);
    let (one, other) = (nodes.locks().open().unwrap(), nodes.locks().open().unwrap());
    take(other.mutex("k")).blocking_release().unwrap();
    let mut turns = Turns::of("of ten who wait eight are told at least");
    while turns.go_on() {
        let mut slow = 0;
        for _ in 0..10 {
            let guard = take(one.mutex("k"));
            thread::scope(|scope| {
                let waiting = scope.spawn(|| take(other.mutex("k")));
                eventually(PATIENCE, "a majority has queued it", || nodes.having(QUEUE) >= 2);
                guard.blocking_release().unwrap();
                let released = Instant::now();
                waiting.join().unwrap().blocking_release().unwrap();
                slow += u32::from(released.elapsed() > ms(150));
            });
        }
        turns.end((slow <= 2).then_some(()).ok_or_else(|| format!("{slow} were not told")));
    }
    nodes.assert_clean();
}

/// The queue of those who wait for `k`, at each node.
const QUEUE: &str = "lock:{lock:k}:~q";

/// Of ten who wait each has the lock in a second.
fn each_has_it_within_a_second(nodes: &Nodes) {
    let mut turns = Turns::of("the next holder has it within a second");
    while turns.go_on() {
        let longest = longest_hand_over(nodes);
        println!("the longest of ten took {longest:?}");
        turns.must_be_below(ms(1_000), longest);
    }
}

/// The longest time from a release to the next holder, of ten.
fn longest_hand_over(nodes: &Nodes) -> Duration {
    let (one, other) = (nodes.locks().open().unwrap(), nodes.locks().open().unwrap());
    let is_queued = || nodes.servers[1].exists(QUEUE);
    let hand_over = |_| {
        let guard = take(one.mutex("k"));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| (take(other.mutex("k")), Instant::now()));
            eventually(PATIENCE, "it has queued", is_queued);
            let released = Instant::now();
            guard.blocking_release().unwrap();
            let (next, since) = waiting.join().unwrap();
            next.blocking_release().unwrap();
            since - released
        })
    };
    (0..10).map(hand_over).max().unwrap()
}

#[test]
fn the_next_holder_has_it_within_a_second_although_a_node_is_down() {
    let nodes = Nodes::start(3);
    nodes.servers[0].kill9();
    each_has_it_within_a_second(&nodes);
}

#[test]
fn the_next_holder_has_it_within_a_second_although_a_node_is_slow() {
    let nodes = Nodes::start(3);
    nodes.proxies[0].delay_up(ms(300));
    nodes.proxies[0].delay_down(ms(300));
    each_has_it_within_a_second(&nodes);
    nodes.proxies[0].pass();
    nodes.assert_clean();
}

#[test]
fn readers_writers_and_several_keys_work_on_a_quorum() {
    let nodes = Nodes::start(3);
    let (one, other) = (nodes.locks().open().unwrap(), nodes.locks().open().unwrap());
    let refused = |request: redis_locks::LockRequest| {
        let error = request.no_wait().blocking_acquire().map(drop).unwrap_err();
        assert!(error.is_busy(), "{error}");
    };
    let (first, second) = (take(one.read("k")), take(other.read("k")));
    refused(other.write("k"));
    first.blocking_release().unwrap();
    second.blocking_release().unwrap();
    let writer = take(one.write("k"));
    refused(other.read("k"));
    let writer = writer.blocking_downgrade().unwrap();
    take(other.read("k")).blocking_release().unwrap();
    writer.blocking_release().unwrap();
    let both = take(one.all(["a", "b"]));
    refused(other.all(["b", "c"]));
    refused(other.mutex("a"));
    take(other.mutex("c")).blocking_release().unwrap();
    both.blocking_release().unwrap();
    take(other.all(["b", "c"])).blocking_release().unwrap();
    nodes.assert_clean();
}

#[test]
fn no_two_hold_it_while_nodes_fail_one_after_the_other() {
    let nodes = Nodes::start(3);
    let inside = AtomicU32::new(0);
    let (over, done) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let locks = nodes.locks().ttl(ms(1_000)).outage(PATIENCE).open().unwrap();
                while !over.load(Ordering::Relaxed) {
                    let guard = take(locks.mutex("k"));
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    thread::sleep(ms(1));
                    let held = is_held(&guard);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    match guard.blocking_release() {
                        Ok(()) => assert!(held),
                        Err(error) => {
                            assert!(matches!(error, LockError::Backend { .. }), "{error}")
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for server in &nodes.servers {
            server.freeze();
            thread::sleep(ms(700));
            server.thaw();
            thread::sleep(ms(1_500));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 100, "{done:?}");
    nodes.assert_clean();
}

#[test]
fn a_node_whose_clock_runs_fast_loses_its_vote() {
    let Some(clock) = ClockShim::new() else { testbed::skip!("there is no C compiler") };
    let nodes =
        Nodes::of(vec![Server::builder().clock(&clock).start(), Server::start(), Server::start()]);
    let locks = nodes.locks().outage(ms(300)).open().unwrap();
    let guard = take(locks.mutex("held").ttl(ms(1_500)));
    let trouble = || {
        let node = locks.blocking_status("k").unwrap().server.nodes[0].clone();
        (node.votes, node.trouble.unwrap_or_default())
    };
    holds_for(ms(1_600), "its clock is right, and it votes", || trouble().0);
    let begin = Instant::now();
    eventually(PATIENCE, "it loses its vote", || {
        clock.set(begin.elapsed().as_secs_f64() / 4.0);
        let (votes, why) = trouble();
        !votes && why.contains("clock")
    });
    // With another one down there is no majority for anything new, and the error says why.
    nodes.servers[2].kill9();
    let is_told = || {
        let error = locks.mutex("new").blocking_acquire().map(drop).unwrap_err();
        assert!(error.to_string().contains("clock"), "{error}");
        // Where the fast node answers first, the other one can change nothing, and is not waited for.
        let votes = votes(&error);
        matches!(votes[..], [Vote::Clock, Vote::Voted | Vote::Late, Vote::Unreachable { .. }])
    };
    eventually(PATIENCE, "all rows are there", is_told);
    nodes.servers[2].restart();
    eventually(PATIENCE, "the two others are enough", || {
        locks.mutex("new").blocking_acquire().is_ok()
    });
    drop(guard);
    eventually(PATIENCE, "it votes again when its leases are over", || trouble().0);
}
