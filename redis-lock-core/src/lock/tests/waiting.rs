//! Waiting for another holder.

use super::*;

#[test]
fn busy_and_backend_failures_are_distinguished() {
    let mut bench = Bench::new();
    bench.contend(1, impatient(), busy_with(Some(secs(3))));
    let (_, error) = bench.failed().remove(0);
    match error {
        LockError::Busy { holder: Some(holder), .. } => {
            assert_eq!(holder.label.as_deref(), Some("them"));
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.machine.is_idle());
    assert!(bench.parted().is_empty(), "one who does not wait leaves nothing behind");

    bench.ask(2, impatient());
    let acquire = bench.asked();
    bench.answer(&acquire, refused());
    assert!(matches!(bench.failed().remove(0).1, LockError::Backend { .. }));
    assert!(bench.machine.is_idle());
}

#[test]
fn i9_the_wait_ends_at_its_bound() {
    let mut bench = Bench::new();
    bench.contend(1, patient(500), busy_with(None));
    bench.tick(499 - 2 * RTT);
    assert!(bench.failed().is_empty());
    bench.tick(1);
    assert!(bench.failed().remove(0).1.is_busy());
    bench.released(); // The place in the queue.
    assert!(bench.machine.is_idle());
}

#[test]
fn i9_a_wait_that_nobody_answers_ends_with_the_timeout_of_the_question() {
    let mut bench = Bench::new();
    bench.ask(1, patient(500));
    bench.asked();
    bench.tick(500);
    assert!(bench.failed().is_empty(), "busy or broken: the first answer decides");
    let timeout = u64::try_from(patient(500).terms.timeout.as_millis()).unwrap();
    bench.tick(timeout - 1);
    assert!(bench.failed().is_empty());
    bench.tick(1);
    assert!(matches!(bench.failed().remove(0).1, LockError::Backend { .. }));
    assert!(bench.released().dropped_question().is_some());
}

#[test]
fn i9_a_wait_shorter_than_an_answer_ends_with_that_answer() {
    for answer in [busy_with(None), refused()] {
        let mut bench = Bench::new();
        bench.ask(1, patient(1));
        let take = bench.asked();
        bench.tick(2);
        assert!(bench.failed().is_empty(), "busy or broken: the first answer decides");
        bench.answer(&take, busy_unknown());
        let acquire = bench.asked();
        bench.answer(&acquire, answer);
        assert_eq!(bench.failed().len(), 1);
        bench.released(); // The place in the queue.
        assert!(bench.machine.is_idle());
    }
}

#[test]
fn i9_a_grant_refuses_the_others_whose_wait_is_over() {
    let mut bench = Bench::new();
    for (id, wait) in [(1, patient(100)), (2, patient(100)), (3, demand("k")), (4, patient(500))] {
        bench.ask(id, wait);
    }
    let take = bench.asked();
    bench.tick(150);
    // This one came behind the question, and its wait is over as well.
    bench.ask(5, patient(50));
    bench.tick(60);
    assert!(bench.failed().is_empty(), "busy or broken: the first answer decides");
    bench.settle(&take, got());
    assert_eq!(bench.granted().0, 1);
    let failed = bench.failed();
    assert_eq!(failed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 5]);
    assert!(failed.iter().all(|(_, error)| error.is_busy()), "{failed:?}");
}

#[test]
fn i9_one_who_came_while_a_question_was_open_is_asked_for_after_it() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let acquire = bench.asked();
    bench.tick(10);
    bench.ask(2, patient(50));
    bench.tick(60);
    bench.settle(&acquire, busy_with(Some(millis(20_000))));
    assert!(bench.failed().is_empty(), "that answer tells of a time before it came");
    let again = bench.asked();
    bench.answer(&again, busy_with(Some(millis(20_000))));
    assert!(bench.failed().remove(0).1.is_busy());
}

#[test]
fn i9_many_whose_time_is_over_are_refused_at_once() {
    const MANY: u64 = 40_000;
    let mut bench = Bench::new();
    bench.contend(0, demand("k"), busy_with(Some(millis(30_000))));
    bench.tick(10);
    for id in 1..=MANY {
        bench.ask(id, patient(100));
    }
    bench.tick(100);
    let question = bench.asked();
    let start = std::time::Instant::now();
    bench.settle(&question, busy_with(Some(millis(30_000))));
    assert_eq!(bench.failed().len() as u64, MANY);
    // This takes some 50 ms. If each waiter searched the whole queue, it would take minutes.
    assert!(start.elapsed() < secs(10), "{:?}", start.elapsed());
}

#[test]
fn i4_a_waiter_looks_when_the_holders_lease_ends() {
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(millis(200))));
    let due = bench.machine.due().since(bench.moment());
    assert!((200..=220).contains(&due.as_millis()), "{due:?}");
    bench.tick(199);
    assert!(bench.is_silent());
    bench.tick(21);
    bench.asked();
}

#[test]
fn i5_a_holder_that_renews_is_not_looked_at_all_the_time() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let answer = busy_with(Some(millis(50)));
    let begun = bench.now;
    for _ in 0..12 {
        let question = bench.asked();
        bench.answer(&question, answer.clone());
        let due = bench.machine.due().since(bench.moment());
        bench.tick(u64::try_from(due.as_millis()).unwrap() + 1);
    }
    let seconds = (bench.now - begun) as f64 / 1_000.0;
    assert!(12.0 / seconds <= 4.0, "{} looks a second", 12.0 / seconds);
}

#[test]
fn i7_a_waiter_that_leaves_does_not_take_the_lock_with_it() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.ask(3, demand("k"));
    assert!(bench.cancel(2));
    assert!(!bench.cancel(2), "it has left");
    bench.release(&first);
    assert_eq!(bench.granted().0, 3);
}

#[test]
fn a_try_is_refused_while_its_process_holds_the_lock() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.ask(2, impatient());
    let (id, error) = bench.failed().remove(0);
    assert!(id == 2 && error.is_busy(), "{error:?}");
    assert!(bench.is_silent() && !hold.is_released());
}

#[test]
fn a_hint_that_overtakes_the_answer_is_not_lost() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let acquire = bench.asked();
    bench.hinted(&Token::fresh("m", "").wire().clone());
    bench.answer(&acquire, busy_with(None));
    assert!(bench.is_silent(), "that was for somebody else");
    bench.tick(1_000);
    let acquire = bench.asked();
    bench.hinted(acquire.command.verb.token().unwrap());
    bench.answer(&acquire, busy_with(None));
    assert!(matches!(bench.asked().command.verb, Verb::Acquire(_)));
}

#[test]
fn i12_a_flood_of_false_hints_is_followed_at_a_bounded_pace() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let token = Arc::clone(take.command.verb.token().unwrap());
    let mut questions = 0;
    for _ in 0..1_000 {
        for question in bench.questions() {
            questions += 1;
            bench.settle(&question, busy_with(Some(secs(3))));
        }
        bench.tick(1);
        bench.hinted(&token);
    }
    assert!((20..=102).contains(&questions), "{questions} questions in a second");
    // A message about a forced release may be forged as well.
    let mut bench = Bench::new();
    let _hold = bench.hold(1, demand("k"));
    let mut checks = 0;
    for _ in 0..1_000 {
        bench.tick(1);
        bench.step(Machine::on_forced);
        for question in bench.questions() {
            assert!(matches!(question.command.verb, Verb::Check { .. }), "{question:?}");
            checks += 1;
            bench.settle(&question, done());
        }
    }
    assert!((20..=101).contains(&checks), "{checks} checks in a second");
}

#[test]
fn a_shutdown_ends_holds_and_waits() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.step(|machine, env| machine.close(&LockError::Shutdown, &LossReason::Shutdown, env));
    assert!(matches!(bench.failed().remove(0), (2, LockError::Shutdown)));
    bench.released();
    assert_eq!(hold.loss(bench.moment()), Some(LossReason::Shutdown));
    assert!(bench.machine.is_idle());
}

#[test]
fn a_try_gets_a_fresh_answer_while_others_wait() {
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    bench.tick(100);
    bench.ask(2, demand("k"));
    assert!(bench.is_silent(), "one who waits looks with the others");
    bench.ask(3, impatient());
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(20))));
    let (id, error) = bench.failed().remove(0);
    assert!(id == 3 && error.is_busy(), "{error:?}");
}

#[test]
fn an_answer_to_a_question_that_was_sent_at_once_counts_for_its_caller() {
    let mut bench = Bench::new();
    bench.contend(1, impatient(), busy_with(Some(secs(20))));
    bench.failed();
    bench.ask(2, impatient());
    let acquire = bench.asked();
    bench.answer(&acquire, busy_with(Some(secs(20))));
    let (id, error) = bench.failed().remove(0);
    assert!(id == 2 && error.is_busy(), "{error:?}");
}

#[test]
fn an_answer_from_before_a_caller_came_does_not_say_that_it_is_busy() {
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    bench.tick(100);
    bench.ask(2, impatient());
    bench.asked();
    bench.tick(u64::try_from(impatient().terms.timeout.as_millis()).unwrap());
    let (id, error) = bench.failed().remove(0);
    assert!(id == 2 && matches!(error, LockError::Backend { .. }), "{error:?}");
}

#[test]
fn a_hint_right_after_another_is_followed_soon() {
    for (lease, looks_after) in [(secs(20), 10), (millis(4), 5)] {
        let mut bench = Bench::new();
        bench.contend(1, demand("k"), busy_with(Some(secs(20))));
        let token = bench.machine.awaited().map(ToString::to_string).unwrap();
        bench.hinted(&token);
        let question = bench.asked();
        bench.settle(&question, busy_with(Some(lease)));
        let begun = bench.moment();
        bench.tick(2);
        bench.hinted(&token);
        assert!(bench.is_silent());
        assert_eq!(bench.machine.due(), begun.after(millis(looks_after)), "{lease:?}");
    }
}

#[test]
fn the_news_that_others_wait_comes_with_a_hint_and_stays() {
    for says_so in [false, true] {
        let mut bench = Bench::new();
        bench.contend(1, demand("k"), busy_with(Some(secs(20))));
        let token = bench.machine.awaited().map(ToString::to_string).unwrap();
        bench.step(|machine, env| machine.on_hint(&token, says_so, env));
        let question = bench.asked();
        bench.hinted(&token);
        bench.answer(&question, got());
        let (_, hold) = bench.granted();
        bench.release(&hold);
        assert_eq!(bench.released().says_waited_for(), says_so);
    }
}

/// The question with a fresh token that follows when the first waiter leaves, and the next one
/// wants another lease.
fn start_over(next: Demand) -> (Bench, Question) {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.ttl = Some(secs(5))));
    bench.ask(2, next);
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let acquire = bench.asked();
    bench.answer(&acquire, busy_with(Some(secs(20))));
    bench.cancel(1);
    bench.tick(1_000);
    bench.released();
    let question = bench.asked();
    (bench, question)
}

#[test]
fn what_a_server_said_of_one_token_counts_for_the_next() {
    let (mut bench, _question) = start_over(patient(1_500));
    bench.tick(499);
    let (id, error) = bench.failed().remove(0);
    assert!(id == 2 && error.is_busy(), "{error:?}");
}

#[test]
fn a_lease_that_somebody_else_had_before_is_not_kept_by_a_fresh_token_either() {
    let (mut bench, question) = start_over(demand("k").with(|terms| terms.linger = Some(secs(5))));
    bench.answer(&question, got());
    let (_, hold) = bench.granted();
    bench.release(&hold);
    bench.released();
}

/// The lock comes when the wait is over: the caller learns that it was busy.
fn is_given_back(bench: &mut Bench, id: u64) {
    bench.tick(1_000);
    let question = bench.asked();
    bench.now += 1_000;
    bench.settle(&question, got());
    assert!(bench.grants().is_empty());
    let (refused, error) = bench.failed().remove(0);
    assert!(refused == id && error.is_busy(), "{error:?}");
    bench.released();
    assert!(bench.machine.is_idle());
}

#[test]
fn a_lock_that_comes_after_the_wait_is_given_back() {
    let mut bench = Bench::new();
    bench.contend(1, patient(1_500), busy_with(Some(secs(20))));
    is_given_back(&mut bench, 1);
    // The same where the first question was sent at once.
    bench.ask(2, patient(1_500));
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(20))));
    is_given_back(&mut bench, 2);
}

#[test]
fn the_first_answer_counts_even_if_it_is_late() {
    let mut bench = Bench::new();
    bench.ask(1, patient(RTT - 1));
    let take = bench.asked();
    bench.answer(&take, got());
    assert_eq!(bench.granted().0, 1);
}

#[test]
fn a_try_during_an_open_question_asks_after_it() {
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    bench.tick(1_000);
    let look = bench.asked();
    bench.tick(1);
    bench.ask(2, impatient());
    bench.answer(&look, busy_with(Some(secs(20))));
    assert!(bench.failed().is_empty(), "that answer tells of a time before it came");
    let again = bench.asked();
    bench.answer(&again, busy_with(Some(secs(20))));
    assert_eq!(bench.failed().len(), 1);
}

#[test]
fn a_try_asks_again_while_its_process_releases_a_token() {
    let value = Some(Token::fresh("m", "").wire().to_string());
    let ours = Outcome::Answered(Answer::Busy(Blocker { value, ..Blocker::unknown() }));
    let mut bench = Bench::new();
    bench.contend(1, impatient(), ours.clone());
    assert!(bench.failed().is_empty());
    let again = bench.asked();
    bench.answer(&again, ours);
    assert_eq!(bench.failed().len(), 1, "once");
}

#[test]
fn a_lost_answer_is_asked_for_at_once_but_not_again_and_again() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, unknown());
    let again = bench.asked();
    bench.answer(&again, unknown());
    assert!(bench.is_silent(), "after a pause");
    bench.tick(100);
    bench.asked();
}

#[test]
fn the_end_of_a_wait_that_was_given_up_is_not_looked_at() {
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    let look = bench.machine.due();
    bench.ask(2, patient(100));
    assert_eq!(bench.machine.due(), bench.moment().after(millis(100)));
    bench.cancel(2);
    assert_eq!(bench.machine.due(), look);
    // The same for one whose wait was over, and that had no answer yet.
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    bench.asked();
    let outage = bench.machine.due();
    bench.ask(2, patient(100));
    bench.tick(100);
    assert_eq!(bench.machine.due(), bench.moment().after(demand("k").terms.timeout));
    bench.cancel(2);
    assert_eq!(bench.machine.due(), outage);
}

#[test]
fn waiters_keep_their_place_when_a_try_has_left() {
    for leaves in [true, false] {
        let mut bench = Bench::new();
        bench.contend(1, demand("k"), busy_with(Some(secs(20))));
        bench.tick(100);
        bench.ask(2, impatient());
        let question = bench.asked();
        assert_eq!(leaves && bench.cancel(2), leaves);
        bench.answer(&question, busy_with(Some(secs(20))));
        assert_eq!(bench.failed().len(), usize::from(!leaves));
        assert!(bench.is_silent(), "nobody is owed an answer");
        bench.tick(1_000);
        let look = bench.asked();
        let Verb::Acquire(terms) = &look.command.verb else { panic!("{look:?}") };
        assert!(terms.queue.is_some(), "{look:?}");
    }
}

#[test]
fn a_call_that_may_wait_is_not_one_too_many_after_it_has_changed_its_token() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.max_waiters = Some(1)));
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(30))));
    bench.tick(1_500);
    let question = bench.asked();
    bench.answer(&question, Outcome::Answered(Answer::Tombstone));
    drop(bench.parted());
    let question = bench.asked();
    bench.waiting = 1;
    bench.answer(&question, busy_with(Some(secs(30))));
    assert!(bench.failed().is_empty());
}

#[test]
fn a_call_that_was_let_in_for_a_lock_that_may_be_free_is_refused_when_it_is_busy() {
    let limited = || demand("k").with(|terms| (terms.max_waiters, terms.fenced) = (Some(1), true));
    let burst = || {
        let mut bench = Bench::new();
        (1..=3).for_each(|id| bench.ask(id, limited()));
        let asked = bench.asked();
        (bench, asked)
    };
    // So many have come since the first one asked, of whom none counts that may get the lock.
    let (mut bench, asked) = burst();
    bench.cancel(3);
    bench.answer(&asked, busy_with(Some(secs(20))));
    let failed = bench.failed();
    assert!(matches!(&failed[..], [(2, LockError::Crowded { waiting: 1, .. })]), "{failed:?}");
    let (mut bench, asked) = burst();
    bench.cancel(2);
    bench.cancel(3);
    bench.answer(&asked, busy_with(Some(secs(20))));
    assert!(bench.failed().is_empty());
    let (mut bench, asked) = burst();
    bench.answer(&asked, Outcome::Answered(Answer::Held { fence: Some(1_031), slot: None }));
    assert!(bench.failed().is_empty(), "one has the lock");
}
