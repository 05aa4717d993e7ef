//! When what was put goes out, where a task of the callers' runtime reads.

use super::*;
use crate::engine::sender::{BlockingCall, Sender};

impl Bench {
    /// Puts a question on the queue for a task of the runtime that reads; whether all has been sent
    /// by then.
    fn is_sent_after_one_more(&mut self, here: runtime::Id) -> bool {
        self.put_question();
        self.path.after_put(Sender::Task(here), &mut self.results.settled);
        self.path.traffic().is_flushed()
    }

    fn answer_all(&mut self) {
        let sent = self.pushed();
        self.server().pushed.clear();
        self.server().answers.extend(sent);
        self.turn(0);
        self.settled();
    }
}

#[test]
fn a_part_is_sent_while_the_rest_is_being_made_and_no_command_alone_but_the_first() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let here = runtime.handle().id();
    let mut bench = Bench::up();
    bench.path.traffic().set_reader(Reader::Task(here));
    for (under_way, batch) in [(30, 4), (30, 10), (6, 10), (6, 4)] {
        let sent: Vec<_> = (0..under_way).map(|_| bench.is_sent_after_one_more(here)).collect();
        let expected: Vec<_> = (0..under_way).map(|made| made % batch == 0).collect();
        assert_eq!(sent, expected, "{under_way} under way, {batch} in a batch");
        bench.path.traffic().push_out(&mut bench.results.settled);
        bench.answer_all();
    }
}

#[test]
fn what_follows_from_the_answers_of_one_of_several_nodes_goes_in_one_batch() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let here = runtime.handle().id();
    for (nodes, is_about_to_flush, sent) in
        [(1, true, true), (3, false, true), (2, true, false), (3, true, false)]
    {
        let mut bench = Bench::up();
        bench.path.traffic().share_batches(nodes);
        bench.path.traffic().set_reader(Reader::Task(here));
        bench.path.traffic().task_flushes = is_about_to_flush;
        let what = format!("the first of {nodes} nodes, about to flush: {is_about_to_flush}");
        assert_eq!(bench.is_sent_after_one_more(here), sent, "{what}");
    }
}

#[test]
fn whoever_reads_after_one_that_was_about_to_flush_is_not_waited_for() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let here = runtime.handle().id();
    let mut bench = Bench::up();
    bench.path.traffic().share_batches(3);
    bench.path.traffic().set_reader(Reader::Task(here));
    bench.path.traffic().task_flushes = true;
    // Its task has ended, and another one reads.
    bench.path.traffic().set_reader(Reader::Engine);
    bench.path.traffic().set_reader(Reader::Task(here));
    assert!(bench.is_sent_after_one_more(here));
}

#[test]
fn a_blocked_thread_is_no_task_of_its_runtime() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let here = Sender::Task(runtime.handle().id());
    assert_eq!(Sender::current(), here);
    let outer = BlockingCall::begin();
    drop(BlockingCall::begin());
    assert_eq!(Sender::current(), Sender::Other, "perhaps no other thread drives that runtime");
    drop(outer);
    assert_eq!(Sender::current(), here);
}

#[test]
fn where_the_engine_reads_all_is_sent_at_once_unless_somebody_waits_for_what_is_under_way() {
    let mut bench = Bench::up();
    let sends = |bench: &mut Bench| {
        bench.path.after_put(Sender::Other, &mut bench.results.settled);
        bench.path.traffic().is_flushed()
    };
    bench.put_release(abandoned().1);
    assert!(sends(&mut bench), "the process may end before its engine runs");
    bench.put_question();
    assert!(sends(&mut bench), "nobody waits for the release");
    bench.put_question();
    assert!(!sends(&mut bench), "the engine sends it along with others");
}

#[test]
fn one_task_of_a_runtime_is_to_read() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let here = runtime.handle().id();
    let bench = Bench::up();
    let mut traffic = bench.path.traffic();
    assert!(traffic.begin_opening(here));
    assert!(!traffic.begin_opening(here), "one is to read already");
    traffic.end_opening(here);
    assert!(traffic.begin_opening(here));
}
