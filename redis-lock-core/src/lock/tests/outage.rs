//! A server that can't be used, and how long callers wait for it.

use super::*;

#[test]
fn an_outage_counts_from_the_last_useful_answer_whoever_leaves_meanwhile() {
    let mut bench = Bench::new();
    for id in 1..=4 {
        // Each wants another lease, so each needs a fresh token when it is the first.
        let ttl = Some(secs(5 * id));
        bench.ask(id, Demand { ttl, outage: secs(3), ..demand("k") });
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
        bench.ask(1, Demand { outage: secs(3), ..demand("k") });
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
    bench.ask(1, Demand { outage: secs(5), ..demand("k") });
    bench.asked();
    bench.tick(3_000);
    bench.ask(2, Demand { outage: secs(1), ..demand("k") });
    bench.tick(500);
    assert!(bench.failed().is_empty());
    bench.tick(500);
    assert_eq!(bench.failed().remove(0).0, 2);
    assert_eq!(bench.machine.due(), begun.after(secs(5)));
    bench.tick(1_000);
    assert_eq!(bench.failed().remove(0).0, 1);
}
