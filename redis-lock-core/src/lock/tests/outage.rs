//! A server that can't be used, and how long callers wait for it.

use super::*;

#[test]
fn an_outage_counts_from_the_last_useful_answer_whoever_leaves_meanwhile() {
    let mut bench = Bench::new();
    for id in 1..=4 {
        // Each wants another lease, so each needs a fresh token when it is the first.
        let ttl = Some(secs(5 * id));
        bench.ask(
            id,
            demand("k").with(|terms| {
                terms.ttl = ttl;
                terms.outage = secs(3);
            }),
        );
    }
    let begun = bench.now;
    let mut gone = 0;
    while gone < 4 {
        if bench.now == begun + 2_500 {
            bench.cancel(1);
            gone += 1;
        }
        for question in bench.questions() {
            bench.settle(&question, refused());
        }
        bench.tick(10);
        gone += bench.failed().len();
        drop(bench.parted());
        assert!(bench.now < begun + 4_000, "only {gone} after {}", bench.now - begun);
    }
}

#[test]
fn an_outage_ends_the_wait_whenever_the_time_is_looked_at() {
    for late in [0, 700] {
        let mut bench = Bench::new();
        bench.ask(1, demand("k").with(|terms| terms.outage = secs(3)));
        bench.asked();
        assert_eq!(bench.machine.due(), bench.moment().after(secs(3)));
        bench.tick(3_000 + late);
        assert_eq!(bench.failed().len(), 1, "{late} ms late");
    }
}

#[test]
fn callers_with_different_limits_for_an_outage_end_each_at_its_own() {
    let mut bench = Bench::new();
    let begun = bench.moment();
    bench.ask(1, demand("k").with(|terms| terms.outage = secs(5)));
    bench.asked();
    bench.tick(3_000);
    bench.ask(2, demand("k").with(|terms| terms.outage = secs(1)));
    bench.tick(500);
    assert!(bench.failed().is_empty());
    bench.tick(500);
    assert_eq!(bench.failed().remove(0).0, 2);
    assert_eq!(bench.machine.due(), begun.after(secs(5)));
    bench.tick(1_000);
    assert_eq!(bench.failed().remove(0).0, 1);
}

#[test]
fn an_outage_ends_even_an_endless_wait() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.outage = secs(3)));
    bench.asked();
    bench.tick(2_999);
    assert!(bench.failed().is_empty());
    bench.tick(1);
    assert!(matches!(bench.failed().remove(0).1, LockError::Backend { .. }));
    bench.released();
    assert!(bench.machine.is_idle());
}

#[test]
fn failures_in_a_row_are_one_outage() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.outage = secs(3)));
    let begun = bench.now;
    let mut failed = Vec::new();
    while failed.is_empty() {
        assert!(bench.now < begun + 4_000, "it puts up with three seconds");
        for question in bench.questions() {
            bench.settle(&question, refused());
        }
        bench.tick(10);
        failed = bench.failed();
    }
    let error = failed.remove(0).1;
    assert!(error.to_string().contains("planted"), "it says what is wrong: {error}");
    assert!(error.to_string().contains("tried for 3.0s"), "and for how long: {error}");
    assert!(bench.now >= begun + 3_000, "after {}", bench.now - begun);
}

#[test]
fn answers_that_take_longer_than_the_lease_are_an_outage() {
    let mut bench = Bench::new();
    let ttl = Some(millis(100));
    bench.ask(
        1,
        demand("k").with(|terms| {
            terms.ttl = ttl;
            terms.outage = secs(3);
        }),
    );
    let mut asked = 0;
    for _ in 0..600 {
        for question in bench.questions() {
            asked += 1;
            bench.now += 150;
            bench.settle(&question, got());
        }
        drop(bench.parted());
        bench.tick(10);
        if let [(1, error)] = bench.failed().as_slice() {
            assert!(error.to_string().contains("longer than the lease"), "{error}");
            assert!(asked < 15, "it is asked ever more rarely, and {asked} times");
            return;
        }
    }
    panic!("it waits in silence");
}

#[test]
fn no_outage_ends_a_wait_for_somebody_who_has_the_lock() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.outage = secs(3)));
    let mut looks = 0;
    for _ in 0..600 {
        for question in bench.questions() {
            looks += 1;
            bench.answer(&question, busy_with(Some(secs(20))));
        }
        bench.tick(100);
    }
    assert!(bench.failed().is_empty(), "the server was of use all the time");
    assert!(looks > 30, "{looks}");
}

#[test]
fn a_busy_lock_is_no_outage_however_long_ago_the_last_answer_came() {
    let mut bench = Bench::new();
    bench.contend(
        1,
        demand("k").with(|terms| terms.outage = millis(200)),
        busy_with(Some(secs(20))),
    );
    let look = bench.machine.due();
    assert!(look > bench.moment().after(millis(500)), "{look:?}");
    bench.tick(500);
    assert!(bench.is_silent(), "{:?}", bench.effects);
}

#[test]
fn i9_a_server_that_answers_did_not_fail_whoever_still_has_no_lock() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.ttl = Some(secs(7))));
    bench.ask(2, patient(100));
    let take = bench.asked();
    assert!(bench.cancel(1));
    bench.tick(200);
    // The lease is not the one that the second caller wants, so it is asked for anew.
    bench.settle(&take, got());
    bench.released();
    let again = bench.asked();
    bench.tick(u64::try_from(patient(100).terms.timeout.as_millis()).unwrap());
    let (_, error) = bench.failed().remove(0);
    assert!(error.is_busy(), "{error:?}");
    assert!(bench.released().dropped_question().is_some());
    drop(again);
}
