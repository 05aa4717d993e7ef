//! When what was put goes out, where a task of the callers' runtime reads.

use tokio::runtime;

use super::*;
use crate::engine::path::After;
use crate::engine::runtime::{BlockingCall, RuntimeId};

/// A runtime, and a connection whose answers a task of it reads.
fn read_by_a_task() -> (runtime::Runtime, Option<RuntimeId>, Bench) {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let here = runtime.handle().id().into();
    let bench = Bench::up();
    bench.path.traffic().role.pass_to(here).unwrap();
    (runtime, Some(here), bench)
}

impl Bench {
    /// Puts a question on the queue. Returns whether all has been sent by then, and who has to act.
    fn ask(&mut self, by: Option<RuntimeId>) -> (bool, After) {
        self.put_question();
        let (after, _) = self.path.after_put(by, &mut self.results.settled);
        (self.path.traffic().is_flushed(), after)
    }
}

#[test]
fn the_first_command_is_sent_at_once_and_those_behind_it_in_one_batch() {
    let (_runtime, by, mut bench) = read_by_a_task();
    for _ in 0..2 {
        assert_eq!(bench.ask(by), (true, After::Nothing), "no caller waits for anything else");
        assert_eq!(bench.ask(by), (false, After::WakeTask));
        assert_eq!(bench.ask(by), (false, After::Nothing), "the reading task is woken already");
        bench.path.traffic().push_out(&mut bench.results.settled);
        assert_eq!(bench.ask(by), (false, After::WakeTask));
        bench.path.traffic().push_out(&mut bench.results.settled);
        let sent = bench.pushed();
        bench.server().pushed.clear();
        bench.server().answers.extend(sent);
        bench.turn(0);
        bench.settled();
    }
}

#[test]
fn who_asks_on_another_runtime_than_the_one_that_reads_sends_at_once() {
    let (_runtime, by, mut bench) = read_by_a_task();
    let other = runtime::Builder::new_current_thread().build().unwrap();
    assert!(bench.ask(by).0);
    for sender in [Some(other.handle().id().into()), None] {
        assert_eq!(bench.ask(sender), (true, After::Nothing), "the other one may stand still");
    }
    bench.server().is_full = true;
    assert_eq!(bench.ask(None), (false, After::WakeTask));
}

#[test]
fn a_task_is_to_read_after_some_hundred_commands_of_tasks() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let by = Some(runtime.handle().id().into());
    let mut bench = Bench::up();
    let mut opens = |by| (0..200).filter(|_| bench.ask(by).1 == After::AskTask).count();
    assert_eq!(opens(None), 0);
    assert_eq!(opens(by), 1);
    assert_eq!(opens(by), 1, "perhaps nothing came of the first try");
}

#[test]
fn a_blocked_thread_is_no_task_of_its_runtime() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let here = Some(runtime.handle().id().into());
    assert_eq!(RuntimeId::of_caller(), here);
    let outer = BlockingCall::begin();
    drop(BlockingCall::begin());
    assert_eq!(RuntimeId::of_caller(), None, "perhaps no other thread drives that runtime");
    drop(outer);
    assert_eq!(RuntimeId::of_caller(), here);
}

#[test]
fn where_the_engine_reads_all_is_sent_at_once_unless_somebody_waits_for_what_is_under_way() {
    let mut bench = Bench::up();
    let sends = |bench: &mut Bench| {
        bench.path.after_put(None, &mut bench.results.settled);
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
    let here = runtime.handle().id().into();
    let bench = Bench::up();
    let mut traffic = bench.path.traffic();
    assert!(traffic.role.ask(here));
    assert!(!traffic.role.ask(here), "one is to read already");
    traffic.role.on_asked(here);
    assert!(traffic.role.ask(here));
}
