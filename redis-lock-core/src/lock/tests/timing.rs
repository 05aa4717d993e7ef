//! When a waiter looks again, and when a failed question is asked once more.

use super::*;

impl Bench {
    /// How long nothing is due.
    fn pause(&self) -> Duration {
        self.machine.due().since(self.moment())
    }

    /// Lets that time pass, to the millisecond.
    fn pass_pause(&mut self) {
        let pause = self.pause().as_nanos().div_ceil(1_000_000);
        self.tick(u64::try_from(pause).unwrap());
    }
}

/// The pauses between so many looks that all find the same holder, with the smallest and the
/// largest spread, in microseconds.
fn pauses(blocker: &Blocker, hints: bool, looks: usize) -> [Vec<u128>; 2] {
    let busy = || Outcome::Answered(Answer::Busy(blocker.clone()));
    [0, 255].map(|spread| {
        let mut bench = Bench::new();
        (bench.spread, bench.hints) = (spread, hints);
        bench.contend(1, demand("k"), busy());
        let mut pauses = vec![bench.pause().as_micros()];
        while pauses.len() < looks {
            bench.pass_pause();
            let question = bench.asked();
            bench.answer(&question, busy());
            pauses.push(bench.pause().as_micros());
        }
        pauses
    })
}

/// Another holder has the lock for so many milliseconds.
fn holder(ttl: Option<u64>) -> Blocker {
    let value = Some(Token::fresh("0123456789ab", "").wire().to_string());
    Blocker { value, ttl: ttl.map(millis), queued: true, ..Blocker::unknown() }
}

#[test]
fn a_waiter_in_the_queue_looks_about_once_a_second() {
    for ttl in [None, Some(20_000)] {
        assert_eq!(pauses(&holder(ttl), true, 3), [[750_000; 3], [999_023; 3]], "{ttl:?}");
    }
    let nobody = Blocker { value: None, ..holder(None) };
    assert_eq!(pauses(&nobody, true, 1), [[750_000], [999_023]]);
}

#[test]
fn a_waiter_looks_right_after_the_end_of_the_holders_lease() {
    assert_eq!(pauses(&holder(Some(600)), true, 3), [[601_000; 3], [601_510; 3]]);
    // A holder that goes on renewing a short lease.
    let short = [[51_000, 51_000, 350_000, 350_000], [51_510, 51_510, 350_000, 350_000]];
    assert_eq!(pauses(&holder(Some(50)), true, 4), short);
    let not_queued = Blocker { queued: false, ..holder(Some(5)) };
    assert_eq!(pauses(&not_queued, true, 4), [[6_000; 4], [16_200; 4]]);
}

#[test]
fn a_waiter_for_another_program_looks_four_times_a_second() {
    let foreign = Blocker { value: Some("theirs".into()), ..holder(None) };
    assert_eq!(pauses(&foreign, true, 3), [[187_500; 3], [312_011; 3]]);
}

#[test]
fn a_waiter_that_no_message_reaches_looks_at_growing_intervals() {
    let growing = [15_000, 30_000, 60_000, 120_000, 240_000, 480_000, 480_000];
    let spread = [24_960, 49_921, 99_843, 199_687, 399_375, 798_750, 798_750];
    assert_eq!(pauses(&holder(None), false, 7), [growing, spread]);
    let not_queued = Blocker { queued: false, ..holder(None) };
    assert_eq!(pauses(&not_queued, true, 7), [growing, spread]);
}

/// The pauses after so many failures in a row, in microseconds.
fn failures(class: FaultClass, spread: u8, count: usize) -> Vec<u128> {
    let mut bench = Bench::new();
    bench.spread = spread;
    bench.ask(1, demand("k").with(|terms| terms.outage = secs(3_600)));
    let mut pauses = Vec::new();
    while pauses.len() < count {
        let question = bench.asked();
        bench.settle(&question, Outcome::Refused(Fault::new(class, "planted")));
        pauses.push(bench.pause().as_micros());
        bench.pass_pause();
    }
    pauses
}

#[test]
fn failed_questions_are_asked_again_at_growing_intervals() {
    let of = |spread| failures(FaultClass::Refused, spread, 6);
    assert_eq!(of(0), [25_000, 50_000, 100_000, 200_000, 400_000, 400_000]);
    assert_eq!(of(255), [49_902, 99_804, 199_609, 399_218, 798_437, 798_437]);
}

#[test]
fn what_fails_after_a_new_connection_or_at_a_new_owner_is_asked_again_soon() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.outage = secs(3_600)));
    let refused = || Outcome::Refused(Fault::new(FaultClass::Refused, "planted"));
    for _ in 0..6 {
        let question = bench.asked();
        bench.settle(&question, refused());
        bench.pass_pause();
    }
    let question = bench.asked();
    bench.settle(&question, refused());
    bench.step(Machine::on_connected);
    for expected in [50_000, 100_000, 200_000] {
        let question = bench.asked();
        bench.settle(&question, refused());
        assert_eq!(bench.pause().as_micros(), expected);
        bench.pass_pause();
    }
}

#[test]
fn a_slot_that_is_moving_is_asked_for_often_at_first() {
    let expected =
        [(0, [25_000, 50_000, 100_000, 200_000]), (255, [49_902, 99_804, 199_609, 399_218])];
    for (spread, [quick, twice, four, eight]) in expected {
        let pauses = failures(FaultClass::Moving, spread, 80);
        let at = [1, 15, 16, 31, 32, 47, 48, 64, 80].map(|failure| pauses[failure - 1]);
        assert_eq!(at, [quick, quick, twice, twice, four, four, eight, eight, eight]);
    }
}
