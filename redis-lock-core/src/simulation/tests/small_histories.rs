//! The base histories of the walks: two processes with two tasks each that want one lock, each time
//! with something else that they do, or that is wrong.

use super::{calm, holds};
use crate::simulation::clock::{MILLI, SECOND};
use crate::simulation::plan::{
    Act, CallEnding, HistoryPlan, NodesPlan, PlannedCall, ProcessPlan, Sort,
};
use crate::simulation::planned_trouble::{PlannedTrouble, Refusal};
use crate::simulation::random;
use crate::simulation::readers::ReadersPlan;

/// Two processes with two tasks each that want one lock.
pub(super) fn two_and_two(of: impl Fn(&mut PlannedCall)) -> HistoryPlan {
    let call = |process: usize, task: usize| {
        let mut call = PlannedCall {
            task,
            after: (2 * task + process) as u64 * 3 * MILLI,
            ..holds(process, SECOND, 20 * MILLI)
        };
        of(&mut call);
        call
    };
    HistoryPlan {
        processes: vec![ProcessPlan { rate: 0, command_timeout: SECOND / 2 }; 2],
        keys: vec![Sort::Mutex],
        planned_calls: [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(it, task)| call(it, task)).into(),
        troubles: Vec::new(),
        path: calm(5 * MILLI),
        calm_at: 3 * SECOND,
        ..HistoryPlan::of(1)
    }
}

/// The same, with something going wrong at this millisecond.
pub(super) fn with(mut plan: HistoryPlan, at: u64, trouble: PlannedTrouble) -> HistoryPlan {
    plan.troubles.push((at * MILLI, trouble));
    plan
}

pub(super) type Scenario = (&'static str, HistoryPlan);

pub(super) fn scenarios() -> Vec<Scenario> {
    [features(), second_calls(), endings(), times(), troubled(), elsewhere()].concat()
}

/// What a lock can do.
fn features() -> Vec<Scenario> {
    let plain = || two_and_two(|_| {});
    let mut transactions = plain();
    transactions.path.late_transactions = Some(0);
    let lingers = two_and_two(|call| call.linger = Some(SECOND));
    let adopts = two_and_two(|call| {
        if call.process == 0 {
            let heir = PlannedCall { process: 1, after: 0, ..call.clone() };
            (call.ending, call.heir) = (CallEnding::Detach, Some(Box::new(heir)));
        }
    });
    let mut readers = two_and_two(|call| call.writes = call.process == 1 && call.task == 0);
    readers.keys = vec![Sort::ReadWrite];
    readers.planned_calls.truncate(3);
    let once = two_and_two(|call| (call.once, call.ending) = (Some(SECOND), CallEnding::Complete));
    let set_back = PlannedTrouble::ServerClock { forward: false, by: 3 * SECOND };
    vec![
        ("scripts", plain()),
        ("transactions", transactions),
        ("linger", lingers),
        ("adopt", adopts),
        ("two readers and a writer", readers),
        ("once", once.clone()),
        ("once, and a clock that is set back", with(once, 500, set_back)),
        ("transactions of an old server", old_server()),
    ]
}

/// What a call can ask for when another call has the lock.
fn second_calls() -> Vec<Scenario> {
    let queue = two_and_two(|call| call.queue = Some(1));
    // The calls of one process are replaced by those of the other one while they run and while they wait.
    let newest = two_and_two(|call| (call.newest, call.acts) = (true, vec![Act::Work(60 * MILLI)]));
    let mut beside = newest.clone();
    beside.planned_calls[1].newest = false;
    let share = two_and_two(|call| (call.share, call.ending) = (true, CallEnding::Share));
    let mut fails = share.clone();
    fails.planned_calls[0].ending = CallEnding::Drop;
    let mut by_transactions = newest.clone();
    by_transactions.path.late_transactions = Some(0);
    vec![
        ("queue", queue),
        ("newest", newest),
        ("newest beside a call without it", beside),
        ("newest by transactions", by_transactions),
        ("share", share),
        ("share, and the first one fails", fails),
    ]
}

/// What is late arrives in time, and the lease that the waiter was granted has ended by then.
fn old_server() -> HistoryPlan {
    let mut plan = two_and_two(|call| call.ttl = 20 * SECOND);
    plan.planned_calls.truncate(2);
    plan.path.late_transactions = Some(0);
    plan.processes.iter_mut().for_each(|process| process.command_timeout = 3 * SECOND);
    let executes_what_expired = |seed: &u64| random::hash([*seed, 93, 0, 0]) & 1 == 1;
    plan.seed = (1..).find(executes_what_expired).unwrap_or(1);
    plan
}

/// How calls and holds can end.
fn endings() -> Vec<Scenario> {
    let dropped = |polls| {
        two_and_two(|call| {
            call.polls = (call.process == 0 && call.task == 1).then_some(polls);
        })
    };
    let guards = two_and_two(|call| call.ending = CallEnding::Drop);
    let no_wait = two_and_two(|call| call.wait = Some(0));
    let impatient = two_and_two(|call| {
        call.after = [[30, 25], [38, 50]][call.task][call.process] * MILLI;
        call.patience = (call.process == 0 && call.task == 0).then_some(7 * MILLI);
        call.ttl = if call.task == 0 { SECOND } else { 2 * SECOND };
    });
    let brief = two_and_two(|call| {
        (call.wait, call.fair) = (Some([700, 60][call.task] * MILLI), call.task == 0);
        call.acts = vec![Act::Work(100 * MILLI)];
    });
    let mut shut_down = guards.clone();
    shut_down.troubles.push((75 * MILLI, PlannedTrouble::Shutdown { process: 0 }));
    vec![
        ("dropped at its 1st poll", dropped(1)),
        ("2nd", dropped(2)),
        ("3rd", dropped(3)),
        ("dropped guards", guards),
        ("no wait", no_wait),
        ("given up", impatient),
        ("brief waits", brief),
        ("shut down", shut_down),
    ]
}

/// Leases that are long, short, or of several lengths.
fn times() -> Vec<Scenario> {
    let mut renewed = two_and_two(|call| call.acts = vec![Act::Work(1_300 * MILLI)]);
    (renewed.path.latency, renewed.calm_at) = (40 * MILLI, 6 * SECOND);
    renewed.planned_calls.truncate(2);
    let mut extended = two_and_two(|call| {
        call.ttl = SECOND / 2;
        // A renewal is under way when the longer lease is asked for.
        call.acts =
            [Act::Work(170 * MILLI), Act::Extend(3 * SECOND), Act::Work(400 * MILLI)].into();
    });
    extended.planned_calls.truncate(2);
    let lapses = |margin: u64| {
        let mut plan = two_and_two(|call| {
            (call.ttl, call.renew, call.margin) = (400 * MILLI, false, margin);
            (call.acts, call.ending) = (vec![Act::Work(600 * MILLI)], CallEnding::Drop);
        });
        plan.path.latency = 30 * MILLI;
        plan
    };
    let mut ttls = two_and_two(|call| {
        call.linger = Some(300 * MILLI);
        call.ttl = if call.task == 0 { SECOND / 2 } else { 5 * SECOND };
    });
    ttls.planned_calls.truncate(3);
    let mut late = two_and_two(|call| {
        (call.linger, call.renew, call.ttl) = (Some(SECOND), false, SECOND);
        call.acts = vec![Act::Work(if call.task == 0 { 960 } else { 5 } * MILLI)];
    });
    late.planned_calls.retain(|call| call.process == 0);
    vec![
        ("renewed", renewed),
        ("extended", extended),
        ("lapsed", lapses(0)),
        ("lapsed with a margin", lapses(2 * SECOND)),
        ("idle leases of two lengths", ttls),
        ("an idle lease near its end", late),
    ]
}

/// With something that is wrong from the beginning, or soon.
fn troubled() -> Vec<Scenario> {
    let refuse = |why, lasts| PlannedTrouble::Refuse { why, lasts: lasts * MILLI };
    let works = |time: u64| move |call: &mut PlannedCall| call.acts = vec![Act::Work(time * MILLI)];
    let read_only = two_and_two(|call| call.wait = Some(200 * MILLI));
    let mut replicas = two_and_two(works(1_300));
    replicas.path.has_replicas = true;
    replicas.planned_calls.truncate(2);
    let mut paused = two_and_two(|call| {
        (call.margin, call.ttl) = (3 * SECOND, 400 * MILLI);
        call.acts = vec![Act::Work(200 * MILLI)];
    });
    paused.planned_calls.truncate(3);
    let mut replaced = two_and_two(|call| call.ttl = 30 * SECOND);
    replaced.path.replaces = true;
    replaced.processes.iter_mut().for_each(|process| process.command_timeout = 5 * SECOND);
    let mut away = two_and_two(works(100));
    away.processes.iter_mut().for_each(|process| process.command_timeout = 300 * MILLI);
    let mut cut_off = two_and_two(works(60));
    cut_off.planned_calls.iter_mut().for_each(|call| call.ending = CallEnding::Drop);
    let pause = PlannedTrouble::Pause { process: 0, lasts: 700 * MILLI };
    let cut = PlannedTrouble::Cut { process: 0, late: None };
    let refuses = PlannedTrouble::RefuseConnects { lasts: 1_500 * MILLI };
    vec![
        ("read-only", with(read_only, 50, refuse(Refusal::ReadOnly, 100))),
        ("full, with replicas", with(replicas, 150, refuse(Refusal::OutOfMemory, 2_000))),
        ("paused, with margins", with(paused, 100, pause)),
        ("a server that is replaced", replaced),
        ("cut off while it is held", with(with(cut_off, 80, cut), 150, cut)),
        ("a server that is away", with(with(away, 110, refuses), 115, cut)),
    ]
}

/// On two nodes, and where tasks read.
fn elsewhere() -> Vec<Scenario> {
    let on_nodes = |mut plan: HistoryPlan, part, lasts| {
        plan.keys = vec![Sort::Mutex; 2];
        plan.nodes = Some(NodesPlan {
            count: 2,
            owners: vec![0, 0],
            ahead: vec![0; 4],
            only_moves: true,
            has_sentinels: false,
        });
        let lasts = lasts * MILLI;
        plan.troubles.push((100 * MILLI, PlannedTrouble::MoveSlot { key: 0, to: 1, part, lasts }));
        plan
    };
    let held = two_and_two(|call| {
        (call.ttl, call.acts) = (SECOND, vec![Act::Work(1_500 * MILLI)]);
        call.keys = vec![call.task];
    });
    let busy = two_and_two(|call| call.keys = vec![call.task]);
    let mut read =
        two_and_two(|call| call.acts = [Act::Verify, Act::Work(20 * MILLI), Act::Verify].into());
    read.readers = Some(ReadersPlan {
        runtimes: 3,
        opens_after: 1,
        blocks: 250,
        drops: 250,
        moves: 0,
        unwatchable: 0,
        fills: 40,
        ends: vec![(110 * MILLI, 0)],
    });
    vec![
        ("a slot that is half moved", on_nodes(held, 0, 2_500)),
        ("a slot that moves", on_nodes(busy, 100, 0)),
        ("tasks that read", read),
    ]
}
