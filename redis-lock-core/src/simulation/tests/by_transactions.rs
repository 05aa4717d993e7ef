//! What transactions do with the keys of a server that others write to as well.

use std::time::Duration;

use redis::Value;

use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::planted::{self, PlantedFault};
use crate::simulation::key_space::TransactionServer;
use crate::simulation::planned_trouble::Refusal;
use crate::simulation::server::SimulatedServer;
use crate::store::{Acquire, Answer, Command, Verb};

fn server() -> SimulatedServer {
    let mut server = SimulatedServer::default();
    server.by_transactions = Some(TransactionServer::default());
    server
}

fn command(verb: Verb) -> Command {
    let names = Names::new("lock", "lock:k0");
    Command { names, kind: Kind::Mutex, verb, timeout: Duration::from_secs(1) }
}

fn ask(server: &mut SimulatedServer, verb: Verb) -> Answer {
    server.at_once(&command(verb), (0, "lock:~m:m"), 0, &mut Vec::new()).expect("an answer")
}

fn wrote(server: &mut SimulatedServer, value: &[u8]) {
    let mut set = redis::cmd("SET");
    set.arg("lock:k0").arg(value).arg("PX").arg(30_000);
    server.ask(&set, 0);
}

fn stands(server: &mut SimulatedServer) -> Value {
    let mut get = redis::cmd("GET");
    get.arg("lock:k0");
    server.ask(&get, 0)
}

/// A caller waits for a lock whose token is ours but for a byte in its label.
fn marks() -> Value {
    let server = &mut server();
    let token = [&b"rl1.0123456789abcdef0123456789abcdef.m.0.h"[..], &[0xff]].concat();
    wrote(server, &token);
    let ttl = Some(Duration::from_secs(1));
    let waits = Acquire { queue: ttl, ..Acquire::of("rl1.w".into(), ttl) };
    assert!(matches!(ask(server, Verb::Acquire(waits)), Answer::Busy(blocker) if blocker.queued));
    stands(server)
}

#[test]
fn a_mark_leaves_the_bytes_of_a_token_as_they_are() {
    let token = [&b"rl1.0123456789abcdef0123456789abcdef.m.0.h"[..], &[0xff], b"+"].concat();
    assert_eq!(marks(), Value::BulkString(token.clone()));
    planted::plant(Some(PlantedFault::BytesMadeText));
    let marked = marks();
    planted::plant(None);
    assert_ne!(marked, Value::BulkString(token));
}

/// The answers to two holders, where the fencing counter is this one at first.
fn fenced(counter: &str) -> [Result<Answer, Fault>; 2] {
    let server = &mut server();
    let mut set = redis::cmd("SET");
    set.arg(Names::new("lock", "lock:k0").fence()).arg(format!("{counter} rl1.z"));
    server.ask(&set, 0);
    ["rl1.a", "rl1.b"].map(|token| {
        let wants =
            Acquire { fences: 1, ..Acquire::of(token.into(), Some(Duration::from_secs(1))) };
        let mut ask = |verb| server.at_once(&command(verb), (0, "lock:~m:m"), 0, &mut Vec::new());
        let answer = ask(Verb::Acquire(wants));
        let token = token.into();
        let release =
            Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
        assert!(ask(release).is_ok());
        answer
    })
}

#[test]
fn no_counter_of_another_program_gives_two_holders_one_number() {
    let counters = [1 << 53, 1 << 58, u64::MAX - 1, u64::MAX].map(|number| number.to_string());
    for counter in &counters {
        assert!(fenced(counter).iter().all(Result::is_err), "{counter}");
    }
    planted::plant(Some(PlantedFault::FenceUnbounded));
    let answers = counters.map(|counter| fenced(&counter));
    planted::plant(None);
    assert!(answers.iter().flatten().any(Result::is_ok));
    let twice = |[one, other]: &[Result<Answer, Fault>; 2]| match (one, other) {
        (
            Ok(Answer::Held { fence: one, slot: None }),
            Ok(Answer::Held { fence: other, slot: None }),
        ) => one == other,
        _ => false,
    };
    assert!(answers.iter().any(twice), "{answers:?}");
}

fn waits_in_queue(server: &mut SimulatedServer) -> bool {
    let mut range = redis::cmd("ZRANGE");
    range.arg(Names::new("lock", "lock:k0").queue()).arg(0).arg(-1).arg("WITHSCORES");
    server.ask(&range, 0) != Value::Array(Vec::new())
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue_of_a_full_server_or_knows_that_it_did_not() {
    for queues_when_full in [false, true] {
        let server = &mut server();
        server.by_transactions =
            Some(TransactionServer { queues_when_full, ..TransactionServer::default() });
        wrote(server, b"rl1.a");
        let ttl = Some(Duration::from_secs(1));
        let waits = Acquire { queue: ttl, ..Acquire::of("rl1.w".into(), ttl) };
        assert!(matches!(ask(server, Verb::Acquire(waits)), Answer::Busy(it) if it.queued));
        let release = |tombstone| {
            let token = "rl1.w".into();
            command(Verb::Release { token, waited_for: false, keep: None, share: None, tombstone })
        };
        server.refuse(Refusal::OutOfMemory, 1_000);
        for tombstone in [ttl, None] {
            let gone = server.at_once(&release(tombstone), (0, "lock:~m:m"), 0, &mut Vec::new());
            assert_eq!(gone.is_ok(), queues_when_full, "{gone:?}");
            assert_eq!(waits_in_queue(server), !queues_when_full);
        }
        let gone = server.at_once(&release(ttl), (0, "lock:~m:m"), 2_000, &mut Vec::new());
        assert!(gone.is_ok() && !waits_in_queue(server), "{gone:?}");
    }
}

/// A long value of another program is ended by force, as it was looked at.
fn forces() -> Answer {
    let server = &mut server();
    wrote(server, "x".repeat(300).as_bytes());
    let Answer::Seen(seen) = ask(server, Verb::Look) else { panic!("it is seen") };
    let foreign = seen.foreign.clone();
    let because = "the test wants it".into();
    let answer = ask(server, Verb::Force { tokens: Vec::new(), foreign, because });
    if answer == Answer::Done {
        assert_eq!(stands(server), Value::Nil);
    }
    answer
}

#[test]
fn an_end_by_force_ends_what_stands_there_however_long_it_is() {
    assert_eq!(forces(), Answer::Done);
    planted::plant(Some(PlantedFault::ShownIsForced));
    let answer = forces();
    planted::plant(None);
    assert_ne!(answer, Answer::Done);
}
