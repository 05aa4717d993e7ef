//! Answers that the reading task takes in parts.

use super::*;

/// More than two parts.
const MANY: usize = 80;

impl Bench {
    /// So many questions that have been sent, of which the first ones are answered.
    fn with_answers(answered: usize) -> Self {
        let mut bench = Self::up();
        let numbers: Vec<_> = (0..MANY).map(|_| bench.put_question()).collect();
        assert_eq!(numbers.len(), MANY);
        bench.path.traffic().push_out(&mut bench.results.settled);
        let sent = bench.pushed();
        bench.server().answers.extend(sent.iter().take(answered));
        bench.server().reads = 0;
        bench
    }

    /// Takes one part. Returns how many answers it had, and whether there may be more.
    fn part(&mut self) -> (usize, bool) {
        let now = self.moment();
        let has_more = self.path.traffic().pump_some(now, &mut self.results.settled);
        (self.numbers(Outcome::is_answered).len(), has_more)
    }
}

#[test]
fn one_read_is_handed_over_in_parts_and_sizes_one_batch() {
    let mut bench = Bench::with_answers(MANY);
    let batch = MANY / 3;
    for expected in [(32, true), (32, true), (16, false)] {
        assert_eq!(bench.part(), expected);
        assert_eq!(bench.path.traffic().batch, batch, "of all that was under way");
    }
    assert_eq!(bench.server().reads, 1);
    assert_eq!(bench.part(), (0, false));
    assert_eq!(bench.server().reads, 2, "the next one is a new one");
    assert!(bench.path.traffic().batch < batch);
}

#[test]
fn several_nodes_share_the_batches_that_are_under_way() {
    for (nodes, batch) in [(1, MANY / 3), (2, MANY / 2), (3, MANY), (20, MANY)] {
        let mut bench = Bench::with_answers(MANY);
        bench.path.traffic().share_batches(nodes);
        assert_eq!(bench.part(), (32, true));
        assert_eq!(bench.path.traffic().batch, batch, "{nodes} nodes");
    }
}

#[test]
fn the_engine_takes_what_a_task_has_read_and_not_handed_over() {
    let mut bench = Bench::with_answers(MANY);
    assert_eq!(bench.part(), (32, true));
    bench.turn(0);
    assert_eq!(bench.numbers(Outcome::is_answered).len(), MANY - 32);
    assert_eq!(bench.server().reads, 2, "and what has come since");
}

#[test]
fn answers_that_came_before_the_connection_broke_count_however_many() {
    let mut bench = Bench::with_answers(MANY - 10);
    bench.server().is_broken = true;
    let now = bench.moment();
    assert!(!bench.path.traffic().pump_some(now, &mut bench.results.settled));
    let settled = bench.settled();
    let is_answered = |settled: &&Settled| settled.outcome().is_answered();
    assert_eq!(settled.iter().filter(is_answered).count(), MANY - 10);
    assert_eq!(settled.len(), MANY);
}
