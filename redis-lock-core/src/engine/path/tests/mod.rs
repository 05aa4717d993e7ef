//! The queue of a place and its supervision, with a connection that does what the test says.

mod epochs;
mod sending;
mod silence;

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::*;
use crate::domain::demand::tests::demand;
use crate::domain::env::simulated;
use crate::domain::fault::FaultClass;
use crate::engine::core::Work;
use crate::engine::lock_id::LockId;
use crate::lock::tests::Bench as Locks;
use crate::lock::{Outgoing, Question};
use crate::store::{Answer, Filled, Pulled};

const LIMIT: u64 = 2_000;
const PATIENCE: u64 = 5_000;

/// What the other end of a connection has seen, and what it says next.
#[expect(clippy::struct_excessive_bools, reason = "ways in which a server fails")]
#[derive(Debug, Default)]
struct Server {
    /// What arrived, by what names it on the wire.
    pushed: Vec<(u64, Verb)>,
    is_flushed: bool,
    /// Whether bytes come that complete no answer.
    murmurs: bool,
    answers: VecDeque<u64>,
    /// How often this side has read.
    reads: usize,
    /// Commands of which it is unknown what became, while others go on.
    unknown: VecDeque<u64>,
    /// Commands that take another round, and those of which it was sent.
    rounds: VecDeque<u64>,
    further: Vec<u64>,
    /// Whether all is answered on other connections.
    owes_nothing: bool,
    is_broken: bool,
    /// Whether the server says that it must not be asked.
    turns_away: bool,
    is_closed: bool,
    /// Whether the socket takes nothing.
    is_full: bool,
    /// Whether it answers at once, so that callers read.
    is_instant: bool,
}

/// This side of a connection.
struct FakeWire {
    server: Arc<Mutex<Server>>,
}

impl FakeWire {
    fn new(server: Arc<Mutex<Server>>) -> Self {
        Self { server }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }
}

impl Wire for FakeWire {
    fn push(&mut self, seq: u64, command: Command) {
        let mut server = self.server();
        server.pushed.push((seq, command.verb));
        server.is_flushed = false;
        if server.is_instant {
            server.answers.push_back(seq);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut server = self.server();
        if !server.is_full {
            server.is_flushed = true;
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.server().is_flushed
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let mut server = self.server();
        server.reads += 1;
        let received = std::mem::take(&mut server.murmurs)
            || !server.answers.is_empty()
            || !server.rounds.is_empty();
        if server.is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(Filled { received, more: false })
    }

    fn is_instant(&self) -> bool {
        self.server().is_instant
    }

    fn owes_since(&self, oldest: Moment) -> Option<Moment> {
        (!self.server().owes_nothing).then_some(oldest)
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        let mut server = self.server();
        while let Some(seq) = server.rounds.pop_front() {
            if !wants(seq) {
                let nobody = Fault::new(FaultClass::Refused, "nobody wants it");
                return Some(Pulled::Done(seq, Err(nobody)));
            }
            server.further.push(seq);
        }
        if let Some(seq) = server.unknown.pop_front() {
            return Some(Pulled::Done(seq, Err(Fault::new(FaultClass::Unknown, "it is late"))));
        }
        let answer = server.answers.pop_front().map(|seq| Pulled::Done(seq, Ok(Answer::Done)));
        if answer.is_none() && std::mem::take(&mut server.turns_away) {
            return Some(Pulled::Broken(Fault::new(FaultClass::Refused, "it is a replica")));
        }
        answer
    }
}

impl Drop for FakeWire {
    fn drop(&mut self) {
        self.server().is_closed = true;
    }
}

/// A path in a world of its own, and what came out of it.
struct Bench {
    path: Arc<Path>,
    now: u64,
    results: Results,
    server: Arc<Mutex<Server>>,
    /// The socket of the next connection, if others may write to it.
    questions: u64,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let (entries, _) = self.path.traffic().drain();
            for entry in entries.into_iter().chain(self.results.settled.drain(..)) {
                if let AskedBy::Reap(reap) = entry.origin {
                    reap.give_up();
                }
            }
        }
        simulated::end();
    }
}

impl Bench {
    fn new() -> Self {
        let now = 1_000;
        simulated::begin(Moment::at_millis(now).as_nanos(), 1);
        Self {
            path: Arc::new(Path::new(Duration::from_millis(PATIENCE), 0)),
            now,
            results: Results::default(),
            server: Arc::default(),
            questions: 100,
        }
    }

    /// A path whose first connection stands.
    fn up() -> Self {
        let mut bench = Self::new();
        bench.put_query();
        bench.connect();
        bench.answer(0);
        bench.settled();
        bench.server().pushed.clear();
        bench
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    fn moment(&self) -> Moment {
        Moment::at_millis(self.now)
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        simulated::set_now(self.moment().as_nanos());
    }

    /// Time passes, what has arrived is read, and what is due is done.
    fn turn(&mut self, later: u64) {
        self.pass(later);
        let now = self.moment();
        let mut traffic = self.path.traffic();
        traffic.pump(now, &mut self.results.settled);
        traffic.turn(now, &mut self.results);
    }

    fn put(&mut self, entry: QueueEntry) {
        self.path.put(entry, &mut self.results.settled);
    }

    /// Puts a question of a machine on the queue and returns its number.
    fn put_question(&mut self) -> u64 {
        self.questions += 1;
        let number = self.questions;
        self.put_command(Question { number, command: ping(Duration::from_millis(LIMIT)) });
        number
    }

    fn put_query(&mut self) -> oneshot::Receiver<Result<Answer, Fault>> {
        let (reply, answer) = oneshot::channel();
        let command = Command { timeout: Duration::from_millis(LIMIT), ..ping(Duration::ZERO) };
        self.put(QueueEntry::query(command, reply, self.moment()));
        answer
    }

    fn put_command(&mut self, question: Question) {
        self.put(QueueEntry::of(&id(), Outgoing::Ask(question), self.moment()));
    }

    /// Puts a question on the queue that is dropped then, and returns the release that makes it void.
    fn put_abandoned(&mut self) -> Box<Reap> {
        let (question, reap) = abandoned();
        self.put_command(question);
        reap
    }

    fn put_release(&mut self, reap: Box<Reap>) {
        self.put(QueueEntry::reap(reap, self.moment()));
    }

    /// The attempts to connect that were begun since the last look.
    fn attempts(&mut self) -> Vec<u64> {
        self.results.connects.drain(..).collect()
    }

    /// The only attempt since the last look.
    fn attempt(&mut self) -> u64 {
        let attempts = self.attempts();
        assert_eq!(attempts.len(), 1, "{attempts:?}");
        attempts[0]
    }

    /// The attempt succeeds. Returns the server of the connection before.
    fn connected(&mut self, attempt: u64) -> Arc<Mutex<Server>> {
        let made = Server { is_instant: self.server().is_instant, ..Server::default() };
        let made = Arc::new(Mutex::new(made));
        let wire = Box::new(FakeWire::new(Arc::clone(&made)));
        let now = self.moment();
        self.path.traffic().connected(attempt, wire, now, &mut self.results);
        std::mem::replace(&mut self.server, made)
    }

    fn failed(&mut self, attempt: u64) {
        let fault = Fault::new(FaultClass::Refused, "nobody there");
        let now = self.moment();
        self.path.traffic().failed(attempt, fault, now, &mut self.results);
    }

    /// Connects for what is on the queue.
    fn connect(&mut self) {
        self.turn(0);
        let attempt = self.attempt();
        self.connected(attempt);
    }

    /// The command with this name on the wire is answered.
    fn answer(&mut self, seq: u64) {
        self.server().answers.push_back(seq);
        self.turn(0);
    }

    /// The connection breaks.
    fn break_off(&mut self) {
        self.server().is_broken = true;
        let now = self.moment();
        self.path.traffic().pump(now, &mut self.results.settled);
    }

    fn settled(&mut self) -> Vec<QueueEntry> {
        self.results.settled.drain(..).collect()
    }

    /// The numbers of the questions that were settled since the last look.
    fn numbers(&mut self, is_it: impl Fn(&Outcome) -> bool) -> Vec<u64> {
        let settled = self.settled();
        assert!(settled.iter().all(|settled| is_it(settled.outcome())), "{settled:?}");
        let number = |entry: &QueueEntry| match &entry.origin {
            AskedBy::Lock(_, number) => *number,
            other => panic!("{other:?}"),
        };
        settled.iter().map(number).collect()
    }

    /// What names the commands that the present connection has carried.
    fn pushed(&self) -> Vec<u64> {
        self.server().pushed.iter().map(|(seq, _)| *seq).collect()
    }

    /// Whether the only release that the present connection has carried leaves a tombstone.
    #[track_caller]
    fn leaves_tombstone(&self) -> bool {
        let pushed = self.server().pushed.clone();
        let tombstone = |(_, verb): &(u64, Verb)| match verb {
            Verb::Release { tombstone, .. } => Some(tombstone.is_some()),
            _ => None,
        };
        let releases: Vec<_> = pushed.iter().filter_map(tombstone).collect();
        let [leaves_tombstone] = releases[..] else { panic!("{pushed:?}") };
        leaves_tombstone
    }
}

fn id() -> LockId {
    LockId::of(&demand("k"), || 0)
}

/// A question and the release that makes it void.
fn abandoned() -> (Question, Box<Reap>) {
    let mut locks = Locks::new();
    locks.ask(1, demand("k"));
    let question = locks.asked();
    locks.cancel(1);
    (question, locks.released().take())
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown(_))
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(_))
}

fn is_answered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answered(_))
}

#[test]
fn each_outcome_counts_as_in_hand_at_its_place_until_it_is_handed_over() {
    let locks = crate::Locks::in_memory();
    let core = locks.link().core();
    let paths = [0, 1].map(|spread| Path::new(Duration::from_millis(LIMIT), spread));
    let in_hand = || paths.each_ref().map(|path| path.traffic().is_in_hand());
    let mut work = Work::default();
    for path in &paths {
        let mut traffic = path.traffic();
        traffic.end();
        for _ in 0..2 {
            let entry = QueueEntry::ping(Duration::from_millis(LIMIT), Moment::now());
            traffic.put(entry, &mut work.settled);
        }
    }
    drop(work.settled.pop());
    assert_eq!(in_hand(), [true, true]);
    core.settle(&mut work);
    assert_eq!(in_hand(), [false, false]);
}
