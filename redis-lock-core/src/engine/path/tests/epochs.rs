//! What the end of a connection means for what was asked, and what is not asked any more.

use std::time::Instant;

use super::*;

#[test]
fn what_was_written_is_unknown_and_what_was_not_stays_in_order() {
    let mut bench = Bench::new();
    let written = [bench.put_question(), bench.put_question(), bench.put_question()];
    bench.connect();
    assert_eq!(bench.pushed(), [0, 1, 2]);
    bench.pass(2_000);
    let waits = [bench.put_question(), bench.put_question()];
    bench.break_off();
    assert!(bench.server().is_closed, "no answer of it can come later");
    assert_eq!(bench.numbers(is_unknown), written);
    let later = bench.put_question();
    bench.connect();
    assert_eq!(bench.pushed(), [3, 4, 5]);
    for seq in [3, 4, 5] {
        bench.answer(seq);
    }
    assert_eq!(bench.numbers(is_answered), [waits[0], waits[1], later]);
    assert!(bench.path.traffic().is_at_rest());
}

#[test]
fn what_arrived_before_the_end_counts() {
    let mut bench = Bench::new();
    let [first, second] = [bench.put_question(), bench.put_question()];
    bench.connect();
    bench.server().answers.push_back(0);
    bench.break_off();
    let settled = bench.settled();
    let [one, two] = settled.as_slice() else { panic!("{settled:?}") };
    assert!(
        matches!(&one.origin, AskedBy::Lock(_, it) if *it == first) && is_answered(one.outcome())
    );
    assert!(
        matches!(&two.origin, AskedBy::Lock(_, it) if *it == second) && is_unknown(two.outcome())
    );
}

#[test]
fn while_it_is_down_all_is_refused_at_once() {
    let mut bench = Bench::new();
    let waits = bench.put_question();
    bench.turn(0);
    let attempt = bench.attempt();
    assert!(bench.settled().is_empty());
    bench.failed(attempt);
    assert_eq!(bench.numbers(is_refused), [waits]);
    let late = bench.put_question();
    assert_eq!(bench.numbers(is_refused), [late]);
    bench.turn(0);
    assert!(bench.attempts().is_empty(), "it pauses");
    bench.turn(50);
    let attempt = bench.attempt();
    let meanwhile = bench.put_question();
    assert_eq!(bench.numbers(is_refused), [meanwhile]);
    bench.connected(attempt);
    bench.put_question();
    bench.turn(0);
    assert!(bench.settled().is_empty());
    assert_eq!(bench.pushed(), [0]);
}

#[test]
fn an_attempt_that_takes_longer_than_the_patience_has_failed() {
    let mut bench = Bench::new();
    let waits = bench.put_question();
    bench.turn(0);
    let attempt = bench.attempt();
    bench.turn(PATIENCE - 1);
    assert!(bench.settled().is_empty());
    bench.turn(1);
    assert_eq!(bench.numbers(is_refused), [waits]);
    bench.connected(attempt);
    assert!(bench.path.traffic().epoch().is_none(), "it came too late");
    let refused = bench.put_question();
    assert_eq!(bench.numbers(is_refused), [refused]);
}

#[test]
fn a_connection_that_never_answered_pauses_before_the_next_attempt() {
    let mut bench = Bench::new();
    bench.put_question();
    bench.connect();
    bench.break_off();
    let mut pauses = Vec::new();
    for _ in 0..4 {
        bench.put_question();
        let begun = bench.now;
        bench.turn(0);
        while bench.results.connects.is_empty() {
            bench.turn(1);
        }
        pauses.push(bench.now - begun);
        let attempt = bench.attempt();
        bench.connected(attempt);
        bench.break_off();
    }
    assert!(pauses[0] >= 25 && pauses.is_sorted() && pauses[3] >= 200, "{pauses:?}");
}

#[test]
fn a_server_that_turns_us_away_is_not_asked_all_the_time_and_never_long_left_alone() {
    let mut bench = Bench::new();
    bench.put_question();
    bench.connect();
    let (begun, mut connections) = (bench.now, 0);
    while bench.now < begun + 3_000 {
        bench.put_question();
        bench.turn(0);
        bench.answer(0);
        bench.server().turns_away = true;
        bench.turn(1);
        bench.settled();
        for attempt in bench.attempts() {
            connections += 1;
            bench.connected(attempt);
        }
    }
    assert!((15..60).contains(&connections), "{connections} in 3 s");
}

#[test]
fn a_connection_that_was_of_use_is_made_again_at_once() {
    let mut bench = Bench::up();
    bench.break_off();
    bench.turn(0);
    bench.attempt();

    let mut bench = Bench::new();
    bench.put_question();
    bench.connect();
    bench.pass(1_000);
    bench.break_off();
    bench.turn(0);
    bench.attempt(); // It lived for a second.
}

#[test]
fn a_question_that_was_dropped_gets_no_further_round_and_its_outcome_is_not_reported() {
    let mut bench = Bench::new();
    let reap = bench.put_abandoned();
    let wanted = bench.put_question();
    bench.connect();
    bench.put_release(reap);
    bench.turn(0);
    assert_eq!(bench.pushed(), [0, 1, 2]);
    bench.server().rounds.extend([0, 1]);
    bench.turn(0);
    assert_eq!(bench.server().further, [1]);
    assert!(bench.settled().is_empty());
    bench.answer(1);
    assert_eq!(bench.numbers(is_answered), [wanted]);
    bench.answer(2);
    let settled = bench.settled();
    assert!(matches!(settled[..], [QueueEntry { origin: AskedBy::Reap(_), .. }]), "{settled:?}");
    end(settled);
    assert!(bench.path.traffic().is_at_rest());
}

#[test]
fn a_dropped_question_that_was_answered_already_is_not_reported_either() {
    let mut bench = Bench::new();
    let reap = bench.put_abandoned();
    bench.connect();
    bench.put_release(reap);
    bench.answer(0);
    assert!(bench.settled().is_empty());
}

#[test]
fn a_question_that_was_dropped_before_it_was_written_is_not_sent() {
    let mut bench = Bench::new();
    let (question, reap) = abandoned();
    let token = question.command.verb.token().cloned();
    bench.put_command(question);
    bench.put_release(reap);
    bench.connect();
    let pushed = bench.server().pushed.clone();
    assert_eq!(pushed.len(), 1, "{pushed:?}");
    assert!(matches!(pushed[0].1, Verb::Release { .. }), "{pushed:?}");
    assert_eq!(pushed[0].1.token(), token.as_ref());
}

#[test]
fn a_question_that_was_dropped_before_it_goes_elsewhere_is_not_remembered() {
    for is_retired in [false, true] {
        let mut bench = Bench::new();
        let reap = bench.put_abandoned();
        bench.put_release(reap);
        bench.turn(0);
        let (attempt, now) = (bench.attempt(), bench.moment());
        let mut traffic = bench.path.traffic();
        if is_retired {
            traffic.retire(&Fault::new(FaultClass::Unknown, "gone"), &mut bench.results);
        } else {
            traffic.looked(attempt, now, &mut bench.results);
        }
        drop(traffic);
        end(bench.settled());
        assert!(bench.path.traffic().is_at_rest(), "retired: {is_retired}");
    }
}

#[test]
fn the_release_of_a_question_that_went_down_with_its_connection_leaves_a_tombstone() {
    for is_lost in [false, true] {
        let mut bench = Bench::new();
        let reap = bench.put_abandoned();
        bench.connect();
        if is_lost {
            bench.break_off();
        } else {
            bench.answer(0);
        }
        bench.settled();
        bench.put_release(reap);
        bench.turn(100);
        for attempt in bench.attempts() {
            bench.connected(attempt);
        }
        assert_eq!(bench.leaves_tombstone(), is_lost);
    }
}

/// How long it takes to end a connection on which so many calls were given up.
fn end_with_given_up(count: usize) -> Duration {
    let mut bench = Bench::up();
    let mut locks = Locks::new();
    let mut reaps = Vec::with_capacity(count);
    for number in 0..count {
        locks.ask(1, demand("k"));
        bench.put_command(locks.asked());
        locks.cancel(1);
        reaps.push(locks.released().take());
        if number % 100 == 99 {
            bench.path.traffic().push_out(&mut bench.results.settled);
        }
    }
    bench.path.traffic().push_out(&mut bench.results.settled);
    reaps.into_iter().for_each(|reap| bench.put_release(reap));
    let start = Instant::now();
    bench.break_off();
    let took = start.elapsed();
    let (drained, _) = bench.path.traffic().drain();
    for entry in drained {
        if let AskedBy::Reap(reap) = entry.origin {
            assert!(matches!(
                reap.command(bench.moment()).verb,
                Verb::Release { tombstone: Some(_), .. }
            ));
            reap.give_up();
        }
    }
    end(bench.settled());
    took
}

#[test]
fn a_connection_ends_as_fast_for_each_of_many_calls_that_were_given_up() {
    let ratios: Vec<_> = (0..5)
        .map(|_| {
            let (few, many) = (end_with_given_up(500), end_with_given_up(4_000));
            many.as_secs_f64() / few.as_secs_f64()
        })
        .collect();
    assert!(ratios.iter().any(|ratio| *ratio < 20.0), "8 times as many: {ratios:.1?}");
}

#[test]
fn an_unknown_outcome_of_one_command_is_no_concern_of_others() {
    let mut bench = Bench::new();
    let [late, other] = [bench.put_question(), bench.put_question()];
    bench.connect();
    bench.server().unknown.push_back(0);
    bench.turn(0);
    assert_eq!(bench.numbers(is_unknown), [late]);
    assert!(bench.path.traffic().epoch().is_some() && !bench.server().is_closed);
    bench.answer(1);
    assert_eq!(bench.numbers(is_answered), [other]);
}

#[test]
fn where_a_command_fails_in_silence_the_server_is_asked_whether_it_is_there() {
    let mut bench = Bench::new();
    let fails = |bench: &mut Bench, seq| {
        bench.server().unknown.push_back(seq);
        bench.turn(0);
        bench.path.traffic().origins().filter(|origin| matches!(origin, AskedBy::Ping)).count()
    };
    for _ in 0..3 {
        bench.put_question();
    }
    bench.connect();
    bench.pass(10);
    bench.server().murmurs = true;
    assert_eq!(fails(&mut bench, 0), 0, "something has come");
    bench.pass(10);
    bench.put_question();
    bench.turn(0);
    assert_eq!(fails(&mut bench, 3), 1);
    bench.put_question();
    bench.turn(0);
    assert_eq!(fails(&mut bench, 5), 1, "it was asked already");
}

#[test]
fn the_release_of_a_question_whose_outcome_is_unknown_leaves_a_tombstone() {
    // Whether it comes when the outcome is known here, or was put before and not sent.
    for is_early in [false, true] {
        let mut bench = Bench::new();
        let mut reap = Some(bench.put_abandoned());
        bench.connect();
        if is_early {
            bench.put_release(reap.take().unwrap());
        }
        bench.server().unknown.push_back(0);
        let now = bench.moment();
        bench.path.traffic().pump(now, &mut bench.results.settled);
        assert_eq!(bench.settled().len(), usize::from(!is_early));
        reap.into_iter().for_each(|reap| bench.put_release(reap));
        bench.turn(0);
        assert!(bench.leaves_tombstone(), "early: {is_early}");
    }
}

#[test]
fn a_machine_that_has_heard_of_an_unknown_outcome_releases_as_it_sees_fit() {
    let mut bench = Bench::new();
    let (question, reap) = abandoned();
    let number = question.number;
    bench.put_command(question);
    bench.connect();
    bench.server().unknown.push_back(0);
    bench.turn(0);
    bench.settled();
    bench.path.traffic().unknown_reported(number);
    bench.put_release(reap);
    bench.turn(0);
    assert!(!bench.leaves_tombstone());
}

#[test]
fn what_was_taken_out_counts_until_its_consequences_are_drawn() {
    let mut bench = Bench::new();
    bench.put_release(abandoned().1);
    bench.connect();
    assert!(bench.path.traffic().has_questions() && !bench.path.traffic().is_in_hand());
    bench.break_off();
    assert!(!bench.path.traffic().has_questions() && bench.path.traffic().is_in_hand());
    end(bench.settled());
    assert!(!bench.path.traffic().is_in_hand());
}

/// Gives up the releases among these.
fn end(settled: Vec<QueueEntry>) {
    for entry in settled {
        if let AskedBy::Reap(reap) = entry.origin {
            reap.give_up();
        }
    }
}

#[test]
fn answers_that_came_before_the_connection_broke_count_however_many() {
    const MANY: usize = 80;
    let mut bench = Bench::up();
    for _ in 0..MANY {
        bench.put_question();
    }
    bench.path.traffic().push_out(&mut bench.results.settled);
    let sent = bench.pushed();
    bench.server().answers.extend(sent.iter().take(MANY - 10));
    bench.break_off();
    let settled = bench.settled();
    let is_answered = |entry: &&QueueEntry| entry.outcome().is_answered();
    assert_eq!(settled.iter().filter(is_answered).count(), MANY - 10);
    assert_eq!(settled.len(), MANY);
}
