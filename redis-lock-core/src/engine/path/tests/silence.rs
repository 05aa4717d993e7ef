//! A server that says nothing: which caller gets its error when, and when the connection is given up.

use super::*;

/// A question stays without an answer for the limit, so that a second connection is made. Returns the
/// numbers of the question and of the attempt.
fn suspect(bench: &mut Bench) -> (u64, u64) {
    bench.pass(100);
    let question = bench.put_question();
    bench.turn(0);
    bench.turn(LIMIT);
    (question, bench.attempt())
}

/// The second connection is made, and the first one stays.
fn keeps_the_first(bench: &mut Bench, attempt: u64) {
    let first = bench.connected(attempt);
    assert!(bench.server().is_closed && !first.lock().unwrap().is_closed);
    bench.server = first;
}

#[test]
fn a_second_connection_is_made_after_the_limit_of_the_oldest_question_in_silence() {
    let mut bench = Bench::up();
    bench.pass(100);
    let oldest = bench.put_question();
    bench.turn(0);
    bench.turn(1_000);
    bench.put_question();
    bench.turn(LIMIT - 1_001);
    assert!(bench.attempts().is_empty(), "the oldest has a millisecond left");
    assert_eq!(bench.path.traffic().due(), bench.moment().after(Duration::from_millis(1)));
    bench.turn(1);
    let attempt = bench.attempt();
    bench.turn(100);
    assert!(bench.attempts().is_empty(), "one is enough");
    assert!(bench.settled().is_empty(), "the first may only be slow");
    let first = bench.connected(attempt);
    assert!(first.lock().unwrap().is_closed);
    assert_eq!(bench.numbers(is_unknown), [oldest, oldest + 1]);
    assert_eq!(bench.path.traffic().epoch(), Some(attempt));
}

#[test]
fn the_silence_of_a_connection_that_owes_nothing_is_no_silence() {
    let mut bench = Bench::up();
    bench.server().owes_nothing = true;
    bench.put_question();
    bench.turn(0);
    bench.turn(LIMIT);
    bench.turn(PATIENCE);
    assert!(bench.attempts().is_empty() && bench.settled().is_empty());
    bench.server().owes_nothing = false;
    bench.turn(0);
    assert_eq!(bench.settled().len(), 1, "it counts as soon as one is owed");
}

#[test]
fn nothing_is_suspected_where_something_was_heard() {
    let mut bench = Bench::up();
    bench.pass(100);
    bench.put_question();
    bench.turn(0);
    bench.turn(500);
    bench.server().murmurs = true;
    bench.turn(500);
    bench.turn(LIMIT - 1_000);
    bench.turn(LIMIT);
    assert!(bench.attempts().is_empty(), "a server that speaks is only slow");
    assert!(bench.settled().is_empty());
}

#[test]
fn a_second_connection_is_dropped_where_the_first_has_spoken_meanwhile() {
    let mut bench = Bench::up();
    let epoch = bench.path.traffic().epoch();
    let (question, attempt) = suspect(&mut bench);
    bench.server().murmurs = true;
    bench.turn(10);
    keeps_the_first(&mut bench, attempt);
    assert_eq!(bench.path.traffic().epoch(), epoch);
    bench.answer(1);
    assert_eq!(bench.numbers(is_answered), [question]);
}

#[test]
fn a_second_connection_is_dropped_where_the_first_has_answered_and_was_asked_again() {
    let mut bench = Bench::up();
    let epoch = bench.path.traffic().epoch();
    let (question, attempt) = suspect(&mut bench);
    bench.pass(10);
    bench.answer(1);
    assert_eq!(bench.numbers(is_answered), [question]);
    bench.pass(10);
    let question = bench.put_question();
    bench.turn(0);
    bench.pass(10);
    keeps_the_first(&mut bench, attempt);
    assert_eq!(bench.path.traffic().epoch(), epoch);
    bench.answer(2);
    assert_eq!(bench.numbers(is_answered), [question]);
}

#[test]
fn a_second_connection_that_fails_costs_the_first_nothing() {
    let mut bench = Bench::up();
    let (question, attempt) = suspect(&mut bench);
    bench.failed(attempt);
    bench.turn(100);
    assert!(bench.settled().is_empty());
    assert!(bench.attempts().is_empty(), "it is not tried again before the patience is over");
    bench.answer(1);
    assert_eq!(bench.numbers(is_answered), [question]);
}

#[test]
fn silence_for_the_patience_ends_the_connection() {
    let mut bench = Bench::up();
    bench.pass(100);
    let question = bench.put_question();
    bench.turn(0);
    bench.turn(1_000);
    bench.server().murmurs = true;
    bench.turn(0);
    bench.turn(PATIENCE - 1);
    assert!(bench.settled().is_empty(), "it was heard a second later than the question");
    bench.turn(1);
    assert!(bench.server().is_closed);
    assert_eq!(bench.numbers(is_unknown), [question]);
    bench.attempt();
}

#[test]
fn a_rest_before_the_question_is_no_silence() {
    let mut bench = Bench::up();
    bench.pass(PATIENCE * 3);
    bench.put_question();
    bench.path.traffic().push_out(&mut bench.results.settled);
    bench.turn(LIMIT - 1);
    assert!(bench.settled().is_empty() && bench.attempts().is_empty());
}

#[test]
fn an_idle_connection_is_pinged() {
    let mut bench = Bench::up();
    bench.turn(999);
    assert!(bench.pushed().is_empty());
    bench.turn(1);
    assert!(matches!(bench.server().pushed[..], [(1, Verb::Ping)]));
    bench.turn(PATIENCE);
    assert!(bench.server().is_closed);
}

#[test]
fn whoever_looks_gets_an_error_at_its_deadline_and_the_question_goes_on() {
    let mut bench = Bench::up();
    bench.pass(100);
    let _answer = bench.put_query();
    bench.turn(0);
    bench.turn(LIMIT - 1);
    assert!(bench.results.told.is_empty());
    bench.turn(1);
    let overdue: Vec<_> = bench.results.told.drain(..).collect();
    let [Told::Reply(_, answer)] = overdue.as_slice() else { panic!("{overdue:?}") };
    assert_eq!(answer.as_ref().as_ref().unwrap_err().class, FaultClass::Late);
    bench.turn(500);
    assert!(bench.results.told.is_empty(), "once");
    bench.answer(1);
    let settled = bench.settled();
    assert!(
        matches!(settled[..], [QueueEntry { origin: AskedBy::Query(None), .. }]),
        "{settled:?}"
    );
}

#[test]
fn whoever_looks_gets_an_error_at_its_deadline_though_nothing_could_be_sent() {
    let mut bench = Bench::new();
    let _answer = bench.put_query();
    bench.turn(0);
    bench.attempt();
    bench.turn(LIMIT);
    assert!(matches!(bench.results.told[..], [Told::Reply(..)]));
}

#[test]
fn whoever_releases_gets_an_error_at_its_deadline_and_the_release_goes_on() {
    let mut bench = Bench::up();
    let mut locks = Locks::new();
    let hold =
        locks.hold(1, demand("k").with(|terms| terms.timeout = Duration::from_millis(LIMIT)));
    let _confirmed = locks.release(&hold);
    let reap = locks.released().take();
    let deadline = reap.deadline();
    bench.put_release(reap);
    bench.turn(0);
    let rest = u64::try_from(deadline.since(bench.moment()).as_millis()).unwrap();
    assert!(rest > 0 && rest <= LIMIT + 100, "{rest}");
    bench.turn(rest - 1);
    assert!(bench.results.told.is_empty());
    bench.turn(1);
    let overdue: Vec<_> = bench.results.told.drain(..).collect();
    let [Told::Release(_, Err(error))] = overdue.as_slice() else { panic!("{overdue:?}") };
    assert!(matches!(**error, crate::LockError::Backend { .. }), "{error:?}");
    bench.answer(1);
    assert!(matches!(bench.results.settled[..], [QueueEntry { origin: AskedBy::Reap(_), .. }]));
}

#[test]
fn the_engine_reads_what_a_caller_has_not_read_before_the_connection_counts_as_silent() {
    let limit = Duration::from_millis(500);
    let mut bench = Bench::new();
    bench.path = Arc::new(Path::new(limit, 0));
    bench.server().is_instant = true;
    let sent_first = bench.put_question();
    bench.connect();
    assert_eq!(
        bench.numbers(is_answered),
        [sent_first],
        "the engine has sent it, so no caller reads"
    );
    let question = bench.put_question();
    bench.path.traffic().push_out(&mut bench.results.settled);
    bench.pass(limit.as_millis() as u64 / 2);
    let (now, mut read) = (bench.moment(), Vec::new());
    bench.path.traffic().read_as(None, now, &mut read);
    bench.results.settled.append(&mut read);
    assert_eq!(bench.numbers(is_answered), [question]);
}
