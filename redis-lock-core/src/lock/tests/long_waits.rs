//! What is told of calls that wait for long.

use super::*;

/// After how many seconds it is told that a call waits for long, and what is said.
fn long_waits(bench: &mut Bench, seconds: u64, mut each: impl FnMut(&mut Bench)) -> Vec<u64> {
    let mut told = Vec::new();
    for second in 1..=seconds {
        bench.tick(1_000);
        each(bench);
        let is_long = |it: &mut Later<u64>| matches!(observed(it), Some(Observation::LongWait(..)));
        for later in bench.effects.later.extract_if(.., is_long) {
            let Later::Observe(observation) = later else { continue };
            let Observation::LongWait(demand, error) = *observation else { continue };
            let LockError::Busy { waited, holder: Some(holder), .. } = *error else {
                panic!("{error:?}")
            };
            assert!(waited >= secs(30) && demand.key() == "k", "{holder:?}");
            told.push(second);
        }
    }
    told
}

#[test]
fn a_long_wait_is_told_at_growing_distances() {
    let mut bench = Bench::new();
    let _held = bench.hold(1, demand("k"));
    let renewed = |bench: &mut Bench| {
        for renew in bench.questions() {
            bench.settle(&renew, done());
        }
    };
    bench.ask(2, demand("k"));
    assert_eq!(long_waits(&mut bench, 300, renewed), [30, 60, 120, 240]);
    bench.cancel(2);
    bench.ask(3, demand("k"));
    assert_eq!(long_waits(&mut bench, 60, renewed), [30, 60]);
    bench.cancel(3);
    bench.ask(4, demand("k").with(|terms| terms.outage = crate::domain::demand::ENDLESS));
    assert!(long_waits(&mut bench, 60, renewed).is_empty(), "it wants to lead");
}

#[test]
fn a_long_wait_for_another_process_is_told_too() {
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    let refused = |bench: &mut Bench| {
        for look in bench.questions() {
            bench.settle(&look, busy_with(Some(secs(20))));
        }
    };
    assert_eq!(long_waits(&mut bench, 70, refused), [30, 61]);
}
