//! Releases that fail keep their place before whatever asks for their key.

use super::*;
use crate::LockError;
use crate::engine::tests::{owed, release_of};

/// A path with a reaper, whose connection stands.
fn owing() -> (Bench, Arc<PathReaper>) {
    let (bench, reaper) = (Bench::up(), Arc::<PathReaper>::default());
    bench.path.traffic().owe_to(Arc::clone(&reaper), None);
    (bench, reaper)
}

/// Puts a question of a machine that asks for a key, without sending it.
fn ask_for(bench: &mut Bench, key: &str) {
    let mut locks = Locks::new();
    locks.ask(1, demand(key));
    bench.put_command(locks.asked());
}

/// The connection ends while a release of the key `k` is under way.
fn fail_release(bench: &mut Bench, meanwhile: impl FnOnce(&mut Bench)) {
    bench.put_release(owed("k"));
    bench.turn(0);
    meanwhile(bench);
    bench.server().is_broken = true;
    let now = bench.moment();
    bench.path.traffic().pump(now, &mut bench.results.settled);
}

fn queued(bench: &Bench) -> Vec<&'static str> {
    let traffic = bench.path.traffic();
    let sort = |origin: &Origin| if matches!(origin, Origin::Reap(_)) { "release" } else { "ask" };
    traffic.origins().map(sort).collect()
}

fn give_up(reaper: &PathReaper) -> usize {
    let paused: Vec<_> = reaper.lock().drain().collect();
    paused.into_iter().map(|reap| drop(reap.give_up())).count()
}

#[test]
fn it_is_sent_again_before_a_question_of_its_key_that_is_not_sent_yet() {
    let (mut bench, reaper) = owing();
    fail_release(&mut bench, |bench| {
        ask_for(bench, "other");
        ask_for(bench, "k");
    });
    assert_eq!(queued(&bench), ["release", "ask", "ask"]);
    assert!(!reaper.owes());
    let settled = bench.settled();
    assert!(
        matches!(settled.as_slice(), [Settled::Failed(failed)] if failed.due.is_none()),
        "{settled:?}"
    );
}

#[test]
fn of_several_places_it_is_owed_and_what_asks_for_its_key_goes_behind_its_next_try() {
    let (mut bench, reaper) = (Bench::up(), Arc::new(PathReaper::of_several()));
    bench.path.traffic().owe_to(Arc::clone(&reaper), Some(7));
    fail_release(&mut bench, |bench| {
        ask_for(bench, "other");
        ask_for(bench, "k");
    });
    assert_eq!(queued(&bench), ["ask"]);
    let settled = bench.settled();
    assert!(
        matches!(settled.as_slice(), [Settled::Failed(_), Settled::Redirected(_, None)]),
        "{settled:?}"
    );
    assert_eq!(give_up(&reaper), 1);
}

#[test]
fn it_pauses_where_nobody_asks_for_its_key() {
    let (mut bench, reaper) = owing();
    fail_release(&mut bench, |bench| ask_for(bench, "other"));
    assert_eq!(queued(&bench), ["ask"]);
    assert!(reaper.owes(), "it is owed before anybody else can lock the queue");
    let settled = bench.settled();
    let due =
        settled.iter().find_map(|it| if let Settled::Failed(it) = it { it.due } else { None });
    assert_eq!(due, Some(reaper.lock().due()), "the engine learns when to send it");
    assert_eq!(give_up(&reaper), 1);
}

#[test]
fn it_is_owed_where_the_attempt_to_connect_has_failed() {
    let (mut bench, reaper) = owing();
    bench.break_off();
    let mut locks = Locks::new();
    let hold = locks.hold(1, demand("k"));
    drop(locks.release(&hold));
    bench.put_release(locks.released().take());
    bench.turn(0);
    let (attempt, now) = (bench.attempt(), bench.moment());
    let fault = Fault::new(FaultClass::Refused, "nobody is there");
    bench.path.traffic().failed(attempt, fault, now, &mut bench.results);
    assert!(queued(&bench).is_empty() && reaper.owes());
    assert_eq!(give_up(&reaper), 1);
}

#[test]
fn it_is_owed_at_once_where_nothing_is_connected() {
    let (mut bench, reaper) = owing();
    bench.path.traffic().stop();
    bench.put_release(owed("k"));
    assert!(reaper.owes() && queued(&bench).is_empty());
    assert_eq!(give_up(&reaper), 1);
    bench.settled();
}

#[test]
fn it_is_given_up_after_the_end_of_the_engine_and_its_caller_gets_an_error() {
    let (mut bench, reaper) = owing();
    reaper.lock().end();
    bench.path.traffic().stop();
    let (reap, mut confirmed) = release_of("k");
    bench.put_release(reap);
    assert!(!reaper.owes() && reaper.lock().is_empty());
    let settled = bench.settled();
    let confirmations = settled.into_iter().filter_map(|it| match it {
        Settled::Failed(failed) => failed.confirmation,
        _ => None,
    });
    for (confirm, outcome) in confirmations {
        confirm.send(outcome).unwrap();
    }
    assert!(matches!(confirmed.try_recv(), Ok(Err(LockError::Shutdown))));
}
