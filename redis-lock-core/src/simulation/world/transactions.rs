//! A server that is used without scripts: each question is a transaction of two round trips on a
//! connection of its own. What they read and write is what is decided for real servers, and anything may
//! happen between them; its outcome may be unknown while the link goes on.

use std::sync::Arc;

use redis::Cmd;

use super::{World, WorldEvent};
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::Names;
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::deviation::{self, Deviation, MessageSort};
use crate::simulation::full_key;
use crate::simulation::key_space::{TransactionServer, WatchedKeys};
use crate::simulation::network::LinkState;
use crate::simulation::pipe::Item;
use crate::simulation::plan::{Act, HistoryPlan, Sort};
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::random::{self, Random};
use crate::simulation::transacting::{decide, explained};
use crate::store::redis::{NextStep, TransactionSteps};
use crate::store::{Answer, Command, Verb};

/// How long after the engine has given a transaction up the server may still execute it.
const LATEST: u64 = 3_000 * MILLI;

/// Of a hundred transactions, so many are late.
const LATE: u64 = 15;

/// Each waits for the one before at its key, so the shortest leases have to last for several.
const LATENCY: u64 = 15 * MILLI;

/// Where a transaction is.
pub(super) struct Transaction {
    link: usize,
    seq: u64,
    process: usize,
    steps: TransactionSteps,
    /// What the first round trip has watched, and what the second one brings; `None` before.
    written: Option<(WatchedKeys, Vec<Cmd>)>,
    gives_up_at: u64,
    is_given_up: bool,
    fate: ConnectionFate,
    tries: u64,
}

/// What becomes of the connection during the second round trip.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionFate {
    Lasts,
    /// It ends, and the server has received nothing.
    CutBefore,
    /// It ends, and the server executes what it has received.
    CutAfter,
}

impl HistoryPlan {
    /// The history of a seed on a server without scripts: mutexes alone, each by itself.
    pub(in crate::simulation) fn by_transactions(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        plan.path.late_transactions = Some(LATE);
        plan.path.latency = plan.path.latency.min(LATENCY);
        plan.keys.fill(Sort::Mutex);
        for planned in &mut plan.planned_calls {
            planned.keys.truncate(1);
        }
        let random = &mut Random::new(random::hash([seed, 92, 0, 0]));
        if !plan.troubles.is_empty() && random.percent(20) {
            let key = random.below(plan.keys.len() as u64) as usize;
            let (queue, waiters) = random.pick(&[(true, false), (false, true), (true, true)]);
            let lost = PlannedTrouble::LoseSide { key, queue, waiters };
            plan.troubles.push((random.below(plan.calm_at), lost));
            plan.troubles.sort_by_key(|(at, _)| *at);
        }
        plan
    }
}

/// Those of late claims have a lease of a second, which is what a grant has.
const CLAIM: u64 = SECOND;

impl HistoryPlan {
    /// The history of a seed in which many want one mutex for a moment, and what they send is often late by
    /// as much as a lease lasts.
    pub(in crate::simulation) fn of_late_claims(seed: u64) -> Self {
        let mut plan = Self::by_transactions(seed);
        plan.path.late_transactions = Some(40);
        plan.troubles.clear();
        plan.processes.iter_mut().for_each(|process| process.command_timeout = 2 * SECOND);
        for planned in &mut plan.planned_calls {
            (planned.keys, planned.ttl, planned.wait, planned.linger) =
                (vec![0], CLAIM, None, None);
            (planned.min_hold, planned.max_hold, planned.patience, planned.polls) =
                (None, None, None, None);
            planned.acts = vec![Act::Work(30 * MILLI)];
            planned.after = 0;
        }
        plan
    }
}

impl World {
    pub(super) fn is_without_scripts(&self) -> bool {
        self.plan.path.late_transactions.is_some()
    }

    /// Some servers have the habits of old versions.
    pub(super) fn do_without_scripts(&mut self) {
        let habits = self.chance(93, 0, 0);
        self.server.by_transactions = self.is_without_scripts().then(|| TransactionServer {
            notices_expiry: habits & 1 == 0,
            queues_when_full: habits & 2 == 0,
            ..TransactionServer::default()
        });
    }

    pub(super) fn begin_transaction(&mut self, link: usize, seq: u64, command: Command) {
        let process = self.links[link].process;
        let manager = Arc::clone(&self.processes[process].core.manager);
        let channel = command.names.channel(&manager);
        let is_heard = self.server.listener(0, &channel).is_some();
        let channel = if is_heard { channel.into() } else { "-".into() };
        let timeout = u64::try_from(command.timeout.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip(Transaction {
            link,
            seq,
            process,
            steps: TransactionSteps::simulated(command, channel),
            written: None,
            gives_up_at: clock::now().saturating_add(timeout),
            is_given_up: false,
            fate: ConnectionFate::Lasts,
            tries: 0,
        });
    }

    /// A round trip of a transaction arrives at the server.
    pub(super) fn round_trip(&mut self, mut transaction: Transaction) {
        let thawed = self.frozen_until(0);
        if clock::now() < thawed {
            self.late_until = self.late_until.max(thawed);
            return self.at(thawed, WorldEvent::Transaction(Box::new(transaction)));
        }
        let next = match transaction.written.take() {
            Some((watched, cmds)) => self.exec(&mut transaction, &watched, &cmds),
            None if self.links[transaction.link].state == LinkState::Closed => return,
            None => self.read(&mut transaction),
        };
        match next {
            Some(NextStep::Done(answer)) => self.end_transaction(&transaction, answer),
            Some(NextStep::Again | NextStep::Aborted) if !transaction.is_given_up => {
                transaction.tries += 1;
                let pause = self.chance(94, transaction.seq, transaction.tries) % (2 * MILLI);
                let path = 2 * self.plan.path.latency;
                self.after(pause + path, WorldEvent::Transaction(Box::new(transaction)));
            }
            _ => {}
        }
    }

    fn read(&mut self, transaction: &mut Transaction) -> Option<NextStep> {
        let now = clock::now();
        if now >= transaction.gives_up_at {
            let what = "no transaction came through in time";
            return Some(NextStep::Done(Err(Fault::new(FaultClass::Refused, what))));
        }
        let (watched, answers) = self.server.read(&mut transaction.steps, now);
        let server = &self.server;
        let mut listens = |channel: &str| server.listener(0, channel).is_some();
        let cmds = match decide(&mut transaction.steps, answers, &mut listens) {
            NextStep::Write(cmds) => cmds,
            other => return Some(other),
        };
        let chance = self.chance(91, transaction.link as u64, transaction.seq ^ now);
        let path = self.plan.path.latency;
        let mut gap = path + chance % path;
        if now < self.plan.calm_at && chance % 100 < self.plan.path.late_transactions.unwrap_or(0) {
            transaction.fate = match chance >> 8 & 7 {
                0 => ConnectionFate::CutBefore,
                1 => ConnectionFate::CutAfter,
                _ => ConnectionFate::Lasts,
            };
            // Around the ends of leases and grants, or not before it is given up.
            let patience = transaction.gives_up_at - now;
            gap += match chance >> 16 & 7 {
                0 => patience + (chance >> 24) % LATEST,
                1 => patience - (chance >> 24) % patience.min(10 * MILLI),
                2 => (chance >> 24) % patience,
                _ => {
                    let about = [90, 280, 380, 590, 980][(chance >> 20) as usize % 5] * MILLI;
                    about + (chance >> 24) % (60 * MILLI)
                }
            };
        }
        match self.deviation(MessageSort::Exec, transaction.process) {
            Some(Deviation::Late) => gap += deviation::LATE,
            Some(Deviation::Lost) => transaction.fate = ConnectionFate::CutBefore,
            Some(Deviation::Twice) => transaction.fate = ConnectionFate::CutAfter,
            Some(Deviation::Dies) | None => {}
        }
        if now + gap > transaction.gives_up_at {
            transaction.is_given_up = true;
            let (link, seq) = (transaction.link, transaction.seq);
            if matches!(transaction.steps.command.verb, Verb::Acquire(_)) {
                self.doubt(&transaction.steps.command);
            }
            self.at(transaction.gives_up_at, WorldEvent::GiveUp(link, seq));
        }
        self.late_until = self.late_until.max(now + gap);
        let next = Transaction {
            written: Some((watched, cmds)),
            steps: transaction.steps.clone(),
            ..*transaction
        };
        self.after(gap, WorldEvent::Transaction(Box::new(next)));
        None
    }

    fn exec(
        &mut self,
        transaction: &mut Transaction,
        watched: &WatchedKeys,
        cmds: &[Cmd],
    ) -> Option<NextStep> {
        let now = clock::now();
        if transaction.fate == ConnectionFate::CutBefore {
            return Some(NextStep::Done(Err(unknown("the connection was cut"))));
        }
        let command = &transaction.steps.command;
        self.server.begin(command, now);
        let (answers, published) = self.server.exec(cmds, watched, now);
        let mut messages = Vec::new();
        self.server.tell(published, 0, &mut messages);
        let next = transaction.steps.executed(answers);
        let next = next.unwrap_or_else(|fault| NextStep::Done(Err(fault)));
        let command = transaction.steps.command.clone();
        let next = match next {
            NextStep::Done(Ok(answer)) => {
                let server = &mut self.server;
                let answer = explained(&transaction.steps, answer, |cmd| server.ask(&cmd, now));
                NextStep::Done(Ok(answer))
            }
            other => other,
        };
        if let NextStep::Done(answer) = &next {
            self.server.conclude(&command, answer, now);
        }
        if let Some(what) = self.server.violation.take() {
            self.violated(what);
        }
        for (process, hint) in messages {
            self.publish(process, 0, hint);
        }
        self.tell_of(transaction, &next);
        if transaction.fate == ConnectionFate::CutAfter {
            return Some(NextStep::Done(Err(unknown("the connection was cut"))));
        }
        Some(next)
    }

    fn tell_of(&self, transaction: &Transaction, next: &NextStep) {
        let mut books = self.books.borrow_mut();
        books.history.step(44, transaction.process as u64);
        books.history.line(|names| {
            let command = crate::simulation::shown::command(&transaction.steps.command, names);
            let what = match next {
                NextStep::Done(answer) => crate::simulation::shown::answer(answer, names),
                _ => "aborted".to_owned(),
            };
            format!(
                "server: EXEC of q{} of p{}: {command}: {what}",
                transaction.seq, transaction.process
            )
        });
    }

    fn end_transaction(&mut self, transaction: &Transaction, answer: Result<Answer, Fault>) {
        if transaction.is_given_up {
            return;
        }
        let command = &transaction.steps.command;
        if matches!(&answer, Err(fault) if fault.class.is_unknown()) {
            self.doubt(command);
        }
        self.reply(transaction.link, Item::Answer(transaction.seq, answer));
    }

    /// The client gives a transaction up.
    pub(super) fn give_up(&mut self, link: usize, seq: u64) {
        let what = "the server did not report the outcome of a transaction in time";
        self.reply(link, Item::Answer(seq, Err(unknown(what))));
    }

    fn doubt(&mut self, command: &Command) {
        if let (Verb::Acquire(_), Some(token)) = (&command.verb, command.verb.token()) {
            self.server.note(token).is_doubtful = true;
        }
    }

    /// Keys beside that of a lock are lost.
    pub(super) fn lose_side(&mut self, key: usize, queue: bool, waiters: bool) {
        let names = Names::new("lock", full_key(key));
        if let Some(server) = &mut self.server.by_transactions {
            let lost = [(queue, names.queue()), (waiters, names.waiters())];
            lost.iter().filter(|(is_lost, _)| *is_lost).for_each(|(_, key)| server.keys.lose(key));
        }
        self.server.show(&names, clock::now());
    }
}

fn unknown(what: &str) -> Fault {
    Fault::new(FaultClass::Unknown, what)
}
