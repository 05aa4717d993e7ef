//! What a quorum does while its nodes and their clocks do what they like.

pub(crate) mod fake;

use std::sync::Arc;
use std::time::Duration;

use self::fake::{BEGIN, Doing, FakeClient, FakeQuorum, TTL};
use super::tokens::Tokens;
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::env::simulated;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::planted::{PlantedFault, plant};
use crate::domain::too_few::Vote;
use crate::store::memory::State;
use crate::store::{Acquire, Answer, Command, PLACE, Verb};

/// Whether a fault is found from a seed on, which is shortly before one that finds it.
fn found(fault: PlantedFault, nodes: usize, from: u64) -> bool {
    plant(Some(fault));
    let found = (from..from + 40).any(|seed| FakeQuorum::run(seed, nodes).is_err());
    plant(None);
    simulated::end();
    found
}

#[test]
fn no_two_hold_it_and_fences_rise_whatever_nodes_do() {
    let mut grants = 0;
    for seed in 0..6 {
        for nodes in [3, 5] {
            grants += FakeQuorum::run(seed, nodes).unwrap_or_else(|what| panic!("{seed}: {what}"));
        }
    }
    simulated::end();
    assert!(grants > 100, "{grants}");
}

#[test]
fn faults_that_are_put_in_are_found() {
    use PlantedFault::{FenceOfOne, MajorityOfReached, YoungVote};
    for (fault, from) in [(YoungVote, 14), (MajorityOfReached, 0), (FenceOfOne, 2)] {
        assert!(found(fault, 3, from), "{fault:?}");
    }
    assert!(found(YoungVote, 5, 24));
}

/// The holder has two nodes, of which one forgets it; the third one has never known it.
#[test]
fn a_client_with_a_shorter_rejoin_goes_by_the_longest() {
    let overlaps = |fault| {
        plant(fault);
        let mut world = FakeQuorum::new(1, 3, 2);
        world.clients[1] = FakeClient::new(3, TTL / 10);
        world.clients[1].doing = Doing::Rests { until: BEGIN + 300 };
        world.clients[0].doing = Doing::Rests { until: BEGIN + 60 };
        world.pass(50);
        world.clients[0].links.cut[2] = true;
        while !world.clients[0].holds(world.now) {
            world.step().unwrap();
        }
        if let Doing::Holds { leaves, .. } = &mut world.clients[0].doing {
            *leaves = u64::MAX;
        }
        world.nodes[0].restart(world.now, 7);
        let overlaps = (0..1_200).any(|_| world.step().is_err());
        plant(None);
        simulated::end();
        overlaps
    };
    assert!(!overlaps(None));
    assert!(overlaps(Some(PlantedFault::RejoinUnread)));
}

/// A quorum of three without any trouble, of which one may be slow, and a client that has the lock.
fn held(latency: u64) -> FakeQuorum {
    let mut world = FakeQuorum::new(1, 3, 1);
    world.nodes[2].latency = latency;
    world.clients[0].doing = Doing::Rests { until: BEGIN + 50 };
    let holds = |world: &FakeQuorum| world.clients[0].holds(world.now);
    while !holds(&world) {
        world.step().unwrap();
    }
    if let Doing::Holds { leaves, .. } = &mut world.clients[0].doing {
        *leaves = u64::MAX;
    }
    world
}

#[test]
fn a_repair_counts_only_when_a_later_renewal_has_found_it() {
    let is_lost = |fault| {
        plant(fault);
        let mut world = held(1);
        let token = Arc::clone(&world.clients[0].token);
        world.pass(200);
        world.nodes[0].state = State::default();
        world.nodes[1].state = State::default();
        world.pass(600);
        plant(None);
        simulated::end();
        world.clients[0].token != token
    };
    assert!(is_lost(None));
    assert!(!is_lost(Some(PlantedFault::RepairCounts)), "it would have been brought back");
}

#[test]
fn what_a_loser_has_is_given_back_and_a_late_vote_of_a_winner_is_kept() {
    let losers = |fault| {
        plant(fault);
        let mut world = FakeQuorum::new(1, 3, 1);
        world.clients[0].links.cut = vec![false, true, true];
        world.clients[0].doing = Doing::Rests { until: BEGIN + 50 };
        let mut having = 0;
        for _ in 0..200 {
            world.step().unwrap();
            having = having.max(world.having());
        }
        plant(None);
        simulated::end();
        having
    };
    assert_eq!(losers(None), 0);
    assert_eq!(losers(Some(PlantedFault::LoserKept)), 1);
    let winners = |fault| {
        plant(fault);
        let mut world = held(30);
        world.pass(200);
        let having = world.having();
        plant(None);
        simulated::end();
        having
    };
    assert_eq!(winners(None), 3);
    assert_eq!(winners(Some(PlantedFault::WinnerUndone)), 2);
}

#[test]
fn a_node_whose_leases_end_too_soon_does_not_vote() {
    let runs = |fast, fault| {
        plant(fault);
        let mut world = held(1);
        let token = Arc::clone(&world.clients[0].token);
        world.nodes.iter_mut().for_each(|node| node.fast = fast);
        world.nodes[1].fast = 0;
        world.pass(1_500);
        let bar = world.clients[0].links.seats[0].bar(Moment::now());
        world.clients[0].links.cut[2] = true;
        world.pass(1_200);
        let is_kept = world.clients[0].token == token && world.clients[0].holds(world.now);
        world.nodes.iter_mut().for_each(|node| node.fast = 0);
        world.clients[0].links.cut[2] = false;
        world.pass(6_000);
        let later = world.clients[0].links.seats[0].bar(Moment::now());
        plant(None);
        simulated::end();
        (bar, is_kept, later)
    };
    assert_eq!(runs(9, None), (None, true, None));
    assert_eq!(runs(200, None), (Some(Vote::Clock), false, None));
    assert_eq!(runs(200, Some(PlantedFault::FastVote)), (None, true, None));
}

#[test]
fn a_node_that_tells_whole_seconds_only_does_not_count_as_fast() {
    let (mut tokens, token, secs) = (Tokens::default(), "t".into(), Duration::from_secs);
    let names = Names::new("", "k");
    tokens.asked(&token, (&names, Kind::Mutex), Moment::NEVER, Moment::START);
    tokens.leased(&token, Moment::START, secs(30));
    let has_run_fast =
        |left, passed| tokens.has_run_fast(&token, left, Moment::START.after(passed));
    let half = Duration::from_millis(500);
    assert!(!has_run_fast(secs(29), half), "29.5 s are left, of which it tells 29");
    assert!(has_run_fast(secs(28), half));
    assert!(has_run_fast(secs(29) + Duration::from_millis(1), half), "this one tells more");
}

#[test]
fn what_a_node_that_stood_still_may_have_is_given_back_however_many_that_are() {
    let mut tokens = Tokens::default();
    let names = Names::new("", "k");
    let at = |secs| Moment::START.after(Duration::from_secs(secs));
    let many: Vec<Arc<str>> = (0..1_500).map(|number| number.to_string().into()).collect();
    for token in &many {
        tokens.asked(token, (&names, Kind::Mutex), at(30), at(0));
        tokens.give_up(token, true);
    }
    // The connection ends, and the next one is made when all leases would be over.
    many.iter().for_each(|token| tokens.settled(token, Some(at(35))));
    for number in 0..1_000 {
        let token = format!("later {number}").into();
        tokens.asked(&token, (&names, Kind::Mutex), at(90), at(60));
    }
    assert_eq!(tokens.given_up(at(90), at(60)).len(), many.len());
    // It has answered all releases.
    many.iter().for_each(|token| tokens.released(token));
    assert_eq!(tokens.given_up(at(90), at(60)).len(), 0);
}

#[test]
fn a_young_node_whose_leases_end_too_soon_does_not_keep_a_lock_either() {
    let is_kept = |fast| {
        let mut world = held(1);
        let token = Arc::clone(&world.clients[0].token);
        world.nodes.iter_mut().for_each(|node| node.fast = 0);
        world.nodes[0].fast = fast;
        let seat = &world.clients[0].links.seats[0];
        seat.introduced(Some("restarted"), None, "", Moment::now()).unwrap();
        world.clients[0].links.cut[2] = true;
        world.pass(1_200);
        let is_kept = world.clients[0].token == token && world.clients[0].holds(world.now);
        simulated::end();
        is_kept
    };
    assert!(is_kept(0), "what a young node has been asked to renew counts");
    assert!(!is_kept(200));
}

/// The token is asked for again on the connection after the one on which its release was sent.
#[test]
fn a_vote_that_a_lost_release_may_end_does_not_count() {
    let holds = |fault| {
        plant(fault);
        let mut world = FakeQuorum::new(1, 3, 1);
        world.nodes[0].latency = 20;
        let other = Acquire::of(Arc::clone(Token::fresh("m9", "").wire()), None);
        let (names, verb) = (Names::new("", "k"), Verb::Acquire(other));
        let command = Command { names, kind: Kind::Mutex, verb, timeout: TTL };
        let clock = world.nodes[1].clock(BEGIN);
        let _ = world.nodes[1].state.answer(&command, &"m9".into(), clock, &mut |_, _| true);
        world.clients[0].links.cut[2] = true;
        world.clients[0].doing = Doing::Rests { until: BEGIN + 50 };
        let is_release =
            |(.., command): &(_, _, Command)| matches!(command.verb, Verb::Release { .. });
        let is_undone = |world: &FakeQuorum| {
            let line = world.clients[0].links.lines[0].as_ref().map(|line| line.lock().unwrap());
            line.is_some_and(|line| line.up.iter().any(is_release))
        };
        (0..).find(|_| world.step().is_err() || is_undone(&world));
        let token = Arc::clone(&world.clients[0].token);
        world.clients[0].links.cut[0] = true;
        world.step().unwrap();
        world.clients[0].links.cut[0] = false;
        world.nodes[1].state = State::default();
        world.clients[0].doing = Doing::Rests { until: u64::MAX };
        while !world.clients[0].wire.nodes[0].is_linked() {
            world.step().unwrap();
        }
        world.clients[0].token = Arc::clone(&token);
        world.clients[0].ask(world.now, 0);
        let holds = (0..100).any(|_| {
            world.step().unwrap();
            world.clients[0].token == token && world.clients[0].holds(world.now)
        });
        plant(None);
        simulated::end();
        holds
    };
    assert!(!holds(None));
    assert!(holds(Some(PlantedFault::UndoForgotten)));
}

/// A server that stood still executes it when nothing else that it may have of the token is left.
#[test]
fn what_arrives_when_its_lease_would_be_long_over_is_given_back() {
    let mut world = FakeQuorum::new(1, 3, 1);
    world.nodes[0].latency = 90;
    world.clients[0].links.cut[1..].fill(true);
    world.clients[0].doing = Doing::Rests { until: BEGIN + 50 };
    world.pass(60);
    world.clients[0].links.cut[0] = true;
    world.pass(40);
    let strays = &mut world.clients[0].links.strays;
    // The release that was sent behind it is lost.
    strays.retain(|(.., command)| command.verb.acquires());
    strays.iter_mut().for_each(|(due, ..)| *due += 60_000);
    assert!(!strays.is_empty());
    world.clients[0].leave();
    world.pass(1);
    world.clients[0].doing = Doing::Rests { until: u64::MAX };
    while !world.clients[0].links.strays.is_empty() {
        world.pass(1);
    }
    let has_it = |world: &mut FakeQuorum| {
        let other = Acquire::of(Arc::clone(Token::fresh("m9", "").wire()), Some(TTL));
        let (names, verb) = (Names::new("", "k"), Verb::Acquire(other));
        let command = Command { names, kind: Kind::Mutex, verb, timeout: TTL };
        let clock = world.nodes[0].clock(world.now);
        let answer = world.nodes[0].state.answer(&command, &"m9".into(), clock, &mut |_, _| true);
        matches!(answer, Ok(Answer::Busy(_)))
    };
    assert!(has_it(&mut world));
    world.clients[0].links.cut[0] = false;
    world.pass(300);
    assert!(!has_it(&mut world));
}

#[test]
fn what_one_node_has_of_a_hold_that_a_check_finds_lost_is_given_back() {
    let mut world = held(1);
    let token = Arc::clone(&world.clients[0].token);
    world.pass(10);
    world.nodes[0].state = State::default();
    world.nodes[1].state = State::default();
    assert_eq!(world.having(), 1);
    world.clients[0].push(Verb::Check { token });
    world.pass(30);
    let having = world.having();
    simulated::end();
    assert_eq!(having, 0);
}

/// A caller that waited has kept what it had of split votes. One that does not wait asks with the same token.
#[test]
fn what_a_refused_attempt_has_on_a_node_that_is_away_is_given_back_when_it_is_back() {
    let mut world = FakeQuorum::new(1, 3, 1);
    world.nodes.iter_mut().for_each(|node| node.latency = 4);
    world.nodes[0].latency = 1;
    world.clients[0].doing = Doing::Rests { until: u64::MAX };
    world.pass(30);
    let names = Names::new("", "k");
    let mut tokens = [(); 3].map(|()| Arc::clone(Token::fresh("m0", "").wire()));
    // Of several that split the votes, the first goes on.
    tokens.sort();
    let [token, others @ ..] = tokens;
    for (node, other) in world.nodes[1..].iter_mut().zip(others) {
        let verb = Verb::Acquire(Acquire::of(other, Some(TTL * 60)));
        let command = Command { names: names.clone(), kind: Kind::Mutex, verb, timeout: TTL };
        let clock = node.clock(world.now);
        let _ = node.state.answer(&command, &"m9".into(), clock, &mut |_, _| true);
    }
    let terms = |queue| Acquire { queue, ..Acquire::of(Arc::clone(&token), Some(TTL * 60)) };
    world.clients[0].push(Verb::Acquire(terms(Some(PLACE))));
    world.pass(30);
    assert_eq!(world.having(), 3, "it keeps its node");
    world.clients[0].links.cut[0] = true;
    world.pass(30);
    world.clients[0].push(Verb::Acquire(terms(None)));
    world.pass(30);
    world.clients[0].links.cut[0] = false;
    world.pass(60);
    let having = world.having();
    simulated::end();
    assert_eq!(having, 2);
}

/// The process that gave the hold away had taken it to the node.
#[test]
fn what_a_node_that_is_away_has_of_an_adopted_hold_is_given_back_when_it_is_back() {
    let mut world = FakeQuorum::new(1, 3, 2);
    world.clients.iter_mut().for_each(|it| it.doing = Doing::Rests { until: u64::MAX });
    world.pass(30);
    let (token, ttl) = (Arc::clone(Token::fresh("m0", "").wire()), Some(TTL * 60));
    world.clients[0].push(Verb::Acquire(Acquire::of(Arc::clone(&token), ttl)));
    world.pass(30);
    world.clients[1].links.cut[2] = true;
    world.pass(30);
    world.clients[1].push(Verb::Renew { token: Arc::clone(&token), ttl });
    world.pass(30);
    world.clients[1].push(Verb::Release {
        token,
        waited_for: false,
        keep: None,
        share: None,
        tombstone: None,
    });
    world.pass(30);
    assert_eq!(world.having(), 1);
    world.clients[1].links.cut[2] = false;
    world.pass(60);
    let having = world.having();
    simulated::end();
    assert_eq!(having, 0);
}
