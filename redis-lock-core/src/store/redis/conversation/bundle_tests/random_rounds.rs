//! What bundles answer and leave on the server, against the same commands sent one by one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{TTL, Talk, for_key, load_scripts};
use crate::domain::fault::Fault;
use crate::store::redis::probe::Found;
use crate::store::redis::test_direct::{self, Direct, token};
use crate::store::{Acquire, Answer, Command, Verb};

const KEYS: usize = 5;

/// From here on, tokens are those of other processes.
const OTHERS: usize = 1_000;

/// What happens at one key, between two commands of this process.
#[derive(Clone, Copy, Debug)]
enum Elsewhere {
    /// Another process asks for the lock, and queues when it is busy.
    Waits,
    /// The first of the other processes gives it back.
    Releases,
    Deleted,
    OfAnotherType,
}

/// What this process does with one key.
#[derive(Clone, Copy, Debug)]
enum Here {
    Take,
    Acquire,
    Renew,
    Release,
}

/// What others do, and then what this process sends at once.
type Round = (Vec<(usize, Elsewhere)>, Vec<(usize, Here)>);

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let elsewhere = prop_oneof![
        4 => Just(Elsewhere::Waits),
        3 => Just(Elsewhere::Releases),
        1 => Just(Elsewhere::Deleted),
        1 => Just(Elsewhere::OfAnotherType),
    ];
    let here = prop_oneof![
        3 => Just(Here::Take),
        2 => Just(Here::Acquire),
        3 => Just(Here::Renew),
        4 => Just(Here::Release),
    ];
    let others = prop::collection::vec((0..KEYS, elsewhere), 0..3);
    prop::collection::vec((others, prop::collection::vec((0..KEYS, here), 1..12)), 1..8)
}

/// The tokens of the process, which has one at a time at each key and uses each once.
#[derive(Default)]
struct Tokens {
    made: usize,
    /// The last of them that was asked for in an earlier round: a process without an answer renews nothing.
    answered: usize,
    at: BTreeMap<usize, usize>,
    /// Those of others, in the order of their arrival.
    others: BTreeMap<usize, Vec<usize>>,
}

impl Tokens {
    fn fresh(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    /// The command for this step, if it makes sense.
    fn verb(&mut self, key: usize, here: Here) -> Option<Verb> {
        let ttl = Some(TTL);
        match (here, self.at.get(&key).copied()) {
            (Here::Take | Here::Acquire, None) => {
                let number = self.fresh();
                self.at.insert(key, number);
                let token = token(number);
                Some(match here {
                    Here::Take => Verb::Take { token, ttl },
                    _ => Verb::Acquire(Acquire::of(token, ttl)),
                })
            }
            (Here::Renew, Some(number)) if number <= self.answered => {
                Some(Verb::Renew { token: token(number), ttl })
            }
            (Here::Release, Some(number)) => {
                self.at.remove(&key);
                let token = token(number);
                Some(Verb::Release {
                    token,
                    waited_for: false,
                    keep: None,
                    share: None,
                    tombstone: None,
                })
            }
            _ => None,
        }
    }

    /// What other clients do in between.
    fn elsewhere(&mut self, direct: &mut Direct, key: usize, what: Elsewhere) {
        let main = format!("lock:{key}");
        let run = |direct: &Direct, line: &str| direct.server.run::<()>(line);
        match what {
            Elsewhere::Waits => {
                let number = OTHERS + self.fresh();
                self.others.entry(key).or_default().push(number);
                let _ = direct.send(&for_key(key, test_direct::acquire(number, true)), "-");
            }
            Elsewhere::Releases => {
                let Some(number) = self.others.entry(key).or_default().pop() else { return };
                let _ = direct.send(&for_key(key, test_direct::release(number)), "-");
            }
            Elsewhere::Deleted => run(direct, &format!("DEL {main}")),
            Elsewhere::OfAnotherType => {
                run(direct, &format!("DEL {main}"));
                run(direct, &format!("RPUSH {main} something"));
            }
        }
    }
}

/// The next question of a machine whose lock is busy. It asks once more after the first try, and when its
/// own token blocks it, whose release is under way.
fn next(command: &Command, answer: &Result<Answer, Fault>) -> Option<Command> {
    let Ok(Answer::Busy(blocker)) = answer else { return None };
    if let Verb::Take { token, ttl } = &command.verb {
        let verb = Verb::Acquire(Acquire::of(Arc::clone(token), *ttl));
        return Some(Command { verb, ..command.clone() });
    }
    let value = blocker.value.as_deref().unwrap_or_default().trim_end_matches('+');
    (0..OTHERS).any(|number| *token(number) == *value).then(|| command.clone())
}

/// What an answer says, without what depends on when exactly the server was asked.
fn described(answer: &Result<Answer, Fault>) -> String {
    match answer {
        Ok(Answer::Busy(_)) => "busy".into(),
        Ok(Answer::Gone { .. }) => "gone".into(),
        Ok(Answer::Renewed { longer, waited_for, slot: None }) => {
            format!("renewed, longer: {}, waited for: {waited_for}", longer.is_some())
        }
        other => format!("{other:?}"),
    }
}

/// The value at each key, and the order of its queue.
fn left(direct: &Direct) -> Vec<(String, Vec<String>)> {
    let state = |key| {
        let kind: String = direct.server.run(&format!("TYPE lock:{key}"));
        let value = match kind.as_str() {
            "string" => direct.server.run(&format!("GET lock:{key}")),
            _ => kind,
        };
        (value, direct.server.run(&format!("ZRANGE {{lock:{key}}}:lock:{key}:~q 0 -1")))
    };
    (0..KEYS).map(state).collect()
}

/// The answers of each round, and what it left.
type Seen = Vec<(Vec<String>, Vec<(String, Vec<String>)>)>;

fn play(direct: &mut Direct, found: &Found, rounds: &[Round], at_once: bool) -> Seen {
    direct.server.run::<()>("FLUSHALL");
    let (mut tokens, mut talk) = (Tokens::default(), Talk::with(found.clone()));
    let mut round = |(others, own): &Round| {
        tokens.answered = tokens.made;
        for (key, what) in others {
            tokens.elsewhere(direct, *key, *what);
        }
        let (mut answers, mut asked) = (BTreeMap::new(), BTreeMap::new());
        let (mut open, mut released) = (BTreeMap::new(), Vec::new());
        for (seq, (key, here)) in (0..).zip(own) {
            let is_answered = tokens.at.get(key).is_some_and(|number| *number <= tokens.answered);
            let Some(verb) = tokens.verb(*key, *here) else { continue };
            // Whoever releases a lock has dropped what it asked about it, and a release of a lock whose
            // answer nobody has got may find something or nothing.
            match here {
                Here::Release => {
                    open.remove(key);
                    released.extend(is_answered.then_some(seq));
                }
                _ => open.entry(*key).or_insert_with(Vec::new).push(seq),
            }
            asked.insert(seq, for_key(*key, verb.clone()));
            talk.ask(seq, for_key(*key, verb));
            if !at_once {
                answers.append(&mut talk.finish(direct));
            }
        }
        answers.append(&mut talk.finish(direct));
        for _ in 0..2 {
            // Where nobody else ever waited, a release is done in its bundle, and nothing is in the way.
            let contended = open.iter().filter(|(key, _)| tokens.others.contains_key(key));
            for seq in contended.flat_map(|(_, seqs)| seqs) {
                let answer = &answers[seq];
                if let Some(command) = next(&asked[seq], answer) {
                    asked.insert(*seq, command.clone());
                    talk.ask(*seq, command);
                }
            }
            answers.append(&mut talk.finish(direct));
        }
        let wanted = open.into_values().flatten().chain(released);
        let answers = wanted.map(|seq| format!("{seq}: {}", described(&answers[&seq]))).collect();
        (answers, left(direct))
    };
    rounds.iter().map(&mut round).collect()
}

/// Plays the same rounds one by one and at once, on a server of which this was found out.
fn compare(mut direct: Direct, found: &Found) {
    load_scripts(&mut direct);
    let direct = RefCell::new(direct);
    let mut runner =
        TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&rounds(), |rounds| {
        let mut direct = direct.borrow_mut();
        let one_by_one = play(&mut direct, found, &rounds, false);
        prop_assert_eq!(play(&mut direct, found, &rounds, true), one_by_one);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn bundles_answer_and_leave_what_the_same_commands_one_by_one_would() {
    for direct in Direct::each() {
        compare(direct, &Found::default());
    }
}
