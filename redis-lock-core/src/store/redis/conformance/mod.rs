//! Compares the scripts on real servers, step by step, with the model that is also the store in
//! memory.
//!
//! The server's clock stands, and the test moves it, so that leases and places in the queue end during a run. So
//! the two have the same ends and the same numbers.

mod compare;
mod kept;
mod overheard;
mod seen;
mod steps;
mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use testbed::{ClockShim, Server, ServerBinary};

use super::listen;
use super::probe::Delete;
use super::test_direct::{Direct, redis_6};
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::memory::test_trouble::Trouble;
use crate::store::memory::{State, To};
use crate::store::{Answer, Command, Event, Verb};
use compare::{alike, exclusive};
use overheard::Overheard;
use seen::{LOOK, OneKey, Seen};
use steps::{ALL, Actor, ModelStep, actor, permit, step, token};
use transactions::Transactions;

/// A number from the environment for this run: more cases, or another seed than the fixed one, such
/// as `REDIS_LOCKS_CONFORMANCE_SEED=$RANDOM cargo test -p redis-lock-core conformance`.
fn number(name: &str) -> Option<u32> {
    Some(std::env::var(name).ok()?.parse().expect("a number"))
}

const STEPS: usize = 60;

/// For each change. `cargo xtask ci conformance` plays many more.
const CASES: u32 = 40;

/// Where the clock begins.
const BEGIN: Moment = Moment::from_nanos(1_800_000_000_000_000_000);

/// A server that is compared with the model.
struct Bench {
    direct: Direct,
    /// Set when transactions are used instead of scripts.
    transactions: Option<Transactions>,
    shim: ClockShim,
    /// Subscribes to the channel of the actors that count as alive.
    _listener: std::thread::JoinHandle<()>,
    overheard: Overheard,
    actors: &'static [Actor],
}

impl Bench {
    fn new(binary: ServerBinary, delete: Delete, actors: &'static [Actor]) -> Option<Self> {
        let shim = ClockShim::new()?;
        shim.stand_at(BEGIN.since(Moment::START));
        let mut direct = Direct::start(Server::builder().binary(binary).clock(&shim));
        direct.delete = delete;
        let mut listening = direct.server.client().get_connection().unwrap();
        let (is_ready, listens) = std::sync::mpsc::channel();
        let listener = std::thread::spawn(move || {
            let mut subscription = listening.as_pubsub();
            subscription.subscribe("lock:~m:alive").unwrap();
            is_ready.send(()).unwrap();
            while subscription.get_message().is_ok() {}
        });
        listens.recv().unwrap();
        let overheard = Overheard::at(&direct.server);
        Some(Self { direct, transactions: None, shim, _listener: listener, overheard, actors })
    }

    fn run(&mut self) {
        let config = Config {
            cases: number("REDIS_LOCKS_CONFORMANCE_CASES").unwrap_or(CASES),
            max_shrink_iters: 2_000,
            failure_persistence: None,
            ..Config::default()
        };
        let seed = number("REDIS_LOCKS_CONFORMANCE_SEED").unwrap_or(0);
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let steps = prop::collection::vec(step(self.actors.len()), 1..STEPS);
        let bench = std::cell::RefCell::new(self);
        let outcome = TestRunner::new_with_rng(config, random)
            .run(&steps, |steps| bench.borrow_mut().check(&steps));
        if let Err(failure) = outcome {
            panic!("seed {seed}; to be kept in conformance/kept.rs: {failure}");
        }
    }

    fn check(&mut self, steps: &[ModelStep]) -> Result<(), TestCaseError> {
        self.refuse(None);
        self.direct.server.run::<()>("FLUSHALL");
        let mut trouble = None;
        let (mut now, mut state) = (BEGIN, State::default());
        self.set_clock(now);
        for (number, step) in steps.iter().enumerate() {
            if let ModelStep::Advance { millis } = step {
                now = now.after(Duration::from_millis(*millis));
                self.set_clock(now);
                continue;
            }
            if let ModelStep::Refuse { trouble: next } = step {
                trouble = match self.direct.server.binary().version() {
                    // No script is refused for want of replicas.
                    version if version < (6, 2, 0) => None,
                    // The scripts on a replica see expired keys.
                    (6, ..) => next.and(Some(Trouble::NoReplicas)),
                    _ => *next,
                };
                self.refuse(trouble);
                continue;
            }
            // A write at the moment of the one before might change nothing.
            now = now.after(Duration::from_millis(13));
            self.set_clock(now);
            self.step(&mut state, step, trouble, now).map_err(|difference| {
                TestCaseError::fail(format!("step {number}, {step:?}: {difference}"))
            })?;
            exclusive(&state).map_err(TestCaseError::fail)?;
        }
        Ok(())
    }

    /// Executes a step on the server and in the model, and compares what they answer and have then.
    fn step(
        &mut self,
        state: &mut State,
        step: &ModelStep,
        trouble: Option<Trouble>,
        now: Moment,
    ) -> Result<(), String> {
        let Some((command, who)) = step.command(self.actors) else { return Ok(()) };
        // A mutex that is taken with `SET NX` is not marked before the next waiter looks.
        let entry = state.entries.get(command.names.main());
        if matches!(command.verb, Verb::Take { .. }) && entry.is_some_and(|it| !it.queue.is_empty())
        {
            return Ok(());
        }
        let channel = if self.actors[who].listens { "lock:~m:alive" } else { "lock:~m:dead" };
        let answer = match &self.transactions {
            Some(transactions) => transactions.send(&command, channel, &mut self.direct),
            None => self.direct.send(&command, channel),
        };
        let heard = self.overheard.take(&self.direct.server);
        let mut told = Vec::new();
        let model = self.model(state, trouble, &command, who, now, &mut told);
        told.sort();
        // A script that is refused halfway has sent messages.
        let told = if trouble.is_some() { heard.clone() } else { told };
        let seen = self.look();
        // A token that has nothing may be answered or refused: some servers refuse to compare and delete, and
        // expired keys are removed first.
        let refused = trouble.is_some()
            && matches!(command.verb, Verb::Release { .. } | Verb::Downgrade { .. })
            && matches!((&model, &answer), (Ok(Answer::Gone { .. }), Err(_)));
        let mut keys = seen.keys.iter();
        let difference = keys.find_map(|(key, seen)| seen.difference(state, key, now));
        if difference.is_none()
            && heard == told
            && (refused || alike(command.kind, &model, &answer))
        {
            return Ok(());
        }
        Err(format!(
            "by {who} at {now:?}: the server said {answer:?} and shows {seen:?}, the model {model:?} and has \
             {state:#?}, but for {difference:?}; the server sent {heard:?}, the model {told:?}"
        ))
    }

    fn refuse(&self, trouble: Option<Trouble>) {
        let server = &self.direct.server;
        match trouble {
            Some(Trouble::ReadOnly) => server.run::<()>("REPLICAOF 127.0.0.1 1"),
            _ => server.run::<()>("REPLICAOF NO ONE"),
        }
        let wanted = u8::from(trouble == Some(Trouble::NoReplicas));
        server.run::<()>(&format!("CONFIG SET min-replicas-to-write {wanted}"));
    }

    /// Moves the server's clock, and waits until the server has seen it.
    fn set_clock(&mut self, now: Moment) {
        self.shim.stand_at(now.since(Moment::START));
        testbed::eventually(Duration::from_secs(5), "the server's clock has moved", || {
            self.now() == now
        });
    }

    fn keys(&self) -> BTreeSet<&'static str> {
        self.actors.iter().flat_map(|actor| actor.keys.iter().copied()).collect()
    }

    fn now(&mut self) -> Moment {
        let time: (u64, u64) = redis::cmd("TIME").query(&mut self.direct.connection).unwrap();
        Moment::START.after(Duration::from_micros(time.0 * 1_000_000 + time.1))
    }

    /// Reads the holders and waiters of each key from the server.
    fn look(&mut self) -> Seen {
        type Strings = Vec<String>;
        type One = (Strings, Strings, Strings, Strings, Strings, Strings, Strings, Strings);
        let keys = self.keys();
        let mut eval = redis::cmd("EVAL");
        eval.arg(LOOK).arg(keys.len() * 5);
        for key in &keys {
            let names = Names::new("lock", format!("lock:{key}"));
            eval.arg(names.main()).arg(names.queue()).arg(names.waiters()).arg(names.fence());
            eval.arg(names.latest());
        }
        for who in 0..self.actors.len() {
            eval.arg(&*token(who));
        }
        let shown: Vec<One> = eval.query(&mut self.direct.connection).unwrap();
        let ends = |list: &[String]| -> BTreeMap<String, Moment> {
            let end = |text: &str| {
                let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
                Moment::START.after(Duration::from_millis(digits.parse().unwrap()))
            };
            list.chunks(2).map(|pair| (pair[0].clone(), end(&pair[1]))).collect()
        };
        let shown = shown.iter().map(
            |(holders, waiters, sides, fence, value, shared, tombstones, latest)| OneKey {
                latest: latest
                    .split_first()
                    .map(|(end, tokens)| (ends(&["".into(), end.clone()])[""], tokens.to_vec())),
                holders: ends(holders),
                waiters: ends(waiters),
                queue_ends: ends(sides).into_values().collect(),
                fence: fence.first().map(|text| {
                    let (number, owner) = text.split_once(' ').unwrap();
                    let end = ends(&["".into(), fence[1].clone()]);
                    (number.parse().unwrap(), owner.to_owned(), end[""])
                }),
                value: value.first().map(|text| {
                    let end = ends(&["".into(), value[1].clone()]);
                    (text.clone(), end[""])
                }),
                shared: shared.split_first().map(|(end, fields)| {
                    let end = ends(&["".into(), end.clone()]);
                    let pairs = fields.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                    (pairs.collect(), end[""])
                }),
                tombstones: tombstones
                    .chunks(3)
                    .map(|tombstone| {
                        let end = ends(&["".into(), tombstone[2].clone()]);
                        (tombstone[0].clone(), (tombstone[1].clone(), end[""]))
                    })
                    .collect(),
            },
        );
        Seen { keys: keys.into_iter().zip(shown).collect() }
    }

    fn model(
        &self,
        state: &mut State,
        trouble: Option<Trouble>,
        command: &Command,
        who: usize,
        now: Moment,
        told: &mut Vec<(String, String)>,
    ) -> Result<Answer, Fault> {
        let manager =
            if self.actors[who].listens { "lock:~m:alive" } else { "lock:~m:dead" }.into();
        let mut tell = |to: To<'_>, event: Option<Event>| {
            let (channel, heard) = match to {
                To::Manager(manager) => (command.names.channel(manager), true),
                To::Waiter(channel) => (channel.to_owned(), channel == "lock:~m:alive"),
            };
            let text = event.filter(|_| heard).and_then(|event| listen::message(&event));
            told.extend(text.map(|text| (channel, text)));
            heard
        };
        state.answer_in(trouble, command, &manager, now, &mut tell)
    }
}

fn benches(actors: &'static [Actor]) -> Vec<Bench> {
    let mut benches = Vec::new();
    let deletes = [Delete::Script, Delete::DelIfEq, Delete::Script, Delete::Script];
    let servers =
        [Some(ServerBinary::any()), ServerBinary::valkey(9), redis_6(), ServerBinary::redis_5()];
    for (binary, delete) in servers.into_iter().zip(deletes) {
        match binary.map(|binary| Bench::new(binary, delete, actors)) {
            Some(Some(bench)) => benches.push(bench),
            Some(None) => testbed::report_skipped("needs a C compiler"),
            None => testbed::report_skipped("needs another server"),
        }
    }
    benches
}

#[test]
fn mutexes_by_transactions_do_as_the_model_does() {
    static ACTORS: &[Actor] = &[
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["a"], false),
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["b"], true),
    ];
    by_transactions(ACTORS);
}

fn by_transactions(actors: &'static [Actor]) {
    for bench in &mut benches(actors) {
        bench.transactions = Some(Transactions::new(&bench.direct.server));
        bench.run();
    }
}

fn on_every_server(actors: &'static [Actor]) {
    benches(actors).iter_mut().for_each(Bench::run);
}

/// Runs one sequence of steps.
fn on_every_server_once(actors: &'static [Actor], steps: &[ModelStep]) {
    for bench in &mut benches(actors) {
        if let Err(failure) = bench.check(steps) {
            panic!("on {}: {failure}", bench.direct.server.binary());
        }
    }
}

#[test]
fn l2_readers_and_writers_do_as_the_model_does() {
    static ACTORS: &[Actor] = &[
        actor(Kind::Read, &["k"], true),
        actor(Kind::Write, &["k"], true),
        actor(Kind::Read, &["k"], true),
        actor(Kind::Write, &["k"], true),
        actor(Kind::Read, &["k"], false),
        actor(Kind::Write, &["k"], false),
        actor(Kind::Read, &["k"], true),
    ];
    on_every_server(ACTORS);
}

#[test]
fn l6_permits_do_as_the_model_does() {
    static ACTORS: &[Actor] = &[
        permit(3, true),
        permit(3, true),
        permit(3, true),
        permit(2, true),
        permit(3, false),
        permit(5, true),
        permit(1, true),
    ];
    on_every_server(ACTORS);
}

#[test]
fn l7_mutexes_and_several_at_once_do_as_the_model_does() {
    static ACTORS: &[Actor] = &[
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["b"], true),
        actor(Kind::Mutex, &["b"], false),
        actor(ALL, &["a", "b"], true),
        actor(ALL, &["b", "c"], true),
        actor(ALL, &["a", "b", "c"], true),
        actor(ALL, &["a", "c"], false),
    ];
    on_every_server(ACTORS);
}

#[test]
fn tries_that_ask_for_an_idle_lease_do_as_the_model_does() {
    static ACTORS: &[Actor] = &[
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["a"], true),
        actor(Kind::Mutex, &["a"], false),
        actor(Kind::Mutex, &["a"], false),
    ];
    on_every_server(ACTORS);
    by_transactions(ACTORS);
}

/// Actors of every kind at one key.
static EACH_KIND: &[Actor] = &[
    actor(Kind::Mutex, &["k"], true),
    actor(Kind::Mutex, &["k"], true),
    actor(Kind::Read, &["k"], true),
    actor(Kind::Write, &["k"], true),
    permit(2, true),
    actor(ALL, &["j", "k"], true),
];

#[test]
fn kinds_that_do_not_mix_do_as_the_model_does() {
    on_every_server(EACH_KIND);
}
