//! The answers of servers, as fuzzing makes them up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::dialect::Dialect;
use super::socket::{Scan, Scanned};
use super::transaction::{NextStep, TransactionSteps};
use super::{address, decode, listen, nodes};
use crate::Token;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Acquire, Command, Keep, Verb};

const OWN: &str = "rl1.00112233445566778899aabbccddeeff.0123456789ab.18c0ffee123.me";
const OTHER: &str = "rl1.ffeeddccbbaa99887766554433221100.ba9876543210.018c0ffee12.you";

/// Texts that mean something, or nearly.
const TEXTS: [&str; 28] = [
    OWN,
    OTHER,
    "rl1.n",
    "rl1.x.y.0.z+",
    "rl1=d.18c0ffee123.rl1.x.y.0.z",
    "rl1=k.ffffffffffffffff.rl1.x.y.0.z",
    "r",
    "w",
    "p 3",
    "p 99999999999",
    "+",
    "",
    "0",
    "-1",
    "1",
    "2",
    "9007199254740993",
    "18446744073709551616",
    "1e+08",
    "inf",
    "nan",
    "-inf",
    "ip",
    "port",
    "flags",
    "s_down,o_down",
    "down-after-milliseconds",
    "cluster_current_epoch:18446744073709551615\r\ncluster_state:fail\r\n",
];

const NUMBERS: [i64; 12] =
    [0, 1, -1, -2, -3, -4, 2, 1_000, i64::MAX, i64::MIN, 1 << 53, 9_999_999_999_999];

const ERRORS: [&str; 8] = [
    "-NOSCRIPT No matching script\r\n",
    "-ERR unknown command `EVALSHA`, with args beginning with: \r\n",
    "-NOPERM User x has no permissions to run the 'eval' command\r\n",
    "-WRONGTYPE Operation against a key\r\n",
    "-MOVED 3999 :6381\r\n",
    "-ASK 70000 ?:99999\r\n",
    "-EXECABORT Transaction discarded because of: OOM\r\n",
    "-ERR Error running script: @user_script:1: -OOM command not allowed\r\n",
];

/// Makes values of bytes.
struct Maker<'a>(&'a [u8]);

impl Maker<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn text(&mut self) -> Vec<u8> {
        let choice = usize::from(self.byte());
        if let Some(text) = TEXTS.get(choice) {
            return text.as_bytes().to_vec();
        }
        let (text, rest) = self.0.split_at(self.0.len().min(choice % 48));
        self.0 = rest;
        text.to_vec()
    }

    fn number(&mut self) -> i64 {
        let choice = usize::from(self.byte());
        NUMBERS.get(choice).copied().unwrap_or_else(|| {
            let bytes = [(); 8].map(|()| self.byte());
            i64::from_le_bytes(bytes) >> (choice % 64)
        })
    }

    fn values(&mut self, depth: u8) -> Vec<Value> {
        (0..self.byte() % 9).map(|_| self.value(depth)).collect()
    }

    fn value(&mut self, depth: u8) -> Value {
        match self.byte() % if depth == 0 { 8 } else { 13 } {
            0 => Value::Nil,
            1 => Value::Okay,
            2 => Value::Double(f64::from_bits(self.number() as u64)),
            3 => {
                let error = ERRORS.get(usize::from(self.byte())).unwrap_or(&"-ERR no\r\n");
                redis::parse_redis_value(error.as_bytes()).unwrap_or(Value::Nil)
            }
            4 => Value::SimpleString(String::from_utf8_lossy(&self.text()).into_owned()),
            5 => Value::Int(self.number()),
            6 | 7 => Value::BulkString(self.text()),
            8 => {
                let pairs = self.values(depth - 1);
                let pairs =
                    pairs.chunks(2).filter_map(|it| Some((it[0].clone(), it.get(1)?.clone())));
                Value::Map(pairs.collect())
            }
            9 => Value::Set(self.values(depth - 1)),
            _ => Value::Array(self.values(depth - 1)),
        }
    }

    /// An answer that fits the command, mostly.
    fn answer(&mut self, name: &str) -> Value {
        if self.byte() % 8 == 0 {
            return self.value(3);
        }
        match name {
            "PTTL" | "TTL" => Value::Int(self.number()),
            "TIME" => Value::Array(vec![
                Value::BulkString(self.number().to_string().into_bytes()),
                Value::BulkString(self.number().to_string().into_bytes()),
            ]),
            "ZRANGE" | "HGETALL" => {
                let items = (0..self.byte() % 8 * 2).map(|_| Value::BulkString(self.text()));
                Value::Array(items.collect())
            }
            _ => Value::BulkString(self.text()),
        }
    }

    fn millis(&mut self) -> Duration {
        Duration::from_millis(self.number().unsigned_abs() >> 20)
    }

    fn command(&mut self) -> Command {
        let token: Arc<str> = OWN.into();
        let verb = match self.byte() % 15 {
            0 => Verb::Take { token, ttl: Some(self.millis()) },
            1 => Verb::Renew { token, ttl: Some(self.millis()) },
            2 => Verb::Keep { token, time: self.millis() },
            3 => Verb::Check { token },
            4 => Verb::Why { token },
            5 => Verb::Downgrade { token },
            6 => Verb::Raise { token, fence: self.number().unsigned_abs() },
            7 => Verb::Release {
                token,
                waited_for: self.byte() % 2 == 0,
                keep: (self.byte() % 2 == 0)
                    .then(|| Keep { time: self.millis(), mark: "rl1=k.0.rl1.x.y.0.z".into() }),
                tombstone: (self.byte() % 2 == 0).then(|| self.millis()),
            },
            8 => Verb::Look,
            9 => Verb::Force {
                tokens: vec![Token::from_wire(OTHER)],
                foreign: (self.byte() % 2 == 0)
                    .then(|| String::from_utf8_lossy(&self.text()).as_ref().into()),
                because: "reason".into(),
            },
            10 => Verb::Scan { cursor: 0 },
            11 => Verb::InUse { asker: OTHER.into() },
            12 => Verb::Probe,
            _ => Verb::Acquire(Acquire {
                token,
                ttl: Some(self.millis()),
                queue: (self.byte() % 2 == 0).then(|| self.millis()),
                fair: self.byte() % 2 == 0,
                fences: u32::from(self.byte() % 3),
                once: self.byte() % 4 == 0,
                repair_orphan: (self.byte() % 4 == 0).then(|| self.millis()),
                ask: (self.byte() % 4 == 0).then(|| self.millis()),
            }),
        };
        let kind = match self.byte() % 6 {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Permit { limit: 3 },
            _ => Kind::Mutex,
        };
        let names = Names::new("lock", "lock:key");
        Command { names, kind, verb, timeout: Duration::from_secs(1) }
    }
}

/// A stream, in one piece and in pieces.
pub(crate) fn replies(bytes: &[u8]) {
    let Some((piece, mut stream)) = bytes.split_first() else { return };
    let piece = usize::from(*piece).max(1);
    loop {
        let whole = Scan::default().go_on(stream);
        let (mut pieces, mut end) = (Scan::default(), 0);
        let in_pieces = loop {
            end = (end + piece).min(stream.len());
            match pieces.go_on(&stream[..end]) {
                Ok(Scanned::Part) if end < stream.len() => {}
                scanned => break scanned,
            }
        };
        assert_eq!(whole, in_pieces);
        match whole {
            Ok(Scanned::Reply(length) | Scanned::Push(length)) => {
                assert!(length > 0 && length <= stream.len());
                let _ = redis::parse_redis_value(&stream[..length]);
                stream = &stream[length..];
            }
            Ok(Scanned::Part) | Err(_) => return,
        }
    }
}

pub(crate) fn decode(bytes: &[u8]) {
    let mut maker = Maker(bytes);
    let command = maker.command();
    let value = maker.value(4);
    let asked = "127.0.0.1:6379".into();
    let _ = (decode::is_forgotten(&value), decode::denies_scripts(&value));
    let _ = (decode::is_demoted(&value), decode::crosses_slots(&value));
    let _ = (decode::is_half_moved(&value), decode::other_limit(&value));
    let _ = address::redirect(&value, &asked);
    if let Some(Ok(answer)) = decode::script(&command.verb, value.clone()) {
        let _ = decode::asks_why(&command, &answer);
        let _ = decode::why(answer, &value);
    }
    let _ = decode::plain(&command.verb, value);
    let _ = listen::read(&String::from_utf8_lossy(&maker.text()));
}

pub(crate) fn transaction(bytes: &[u8]) {
    let mut maker = Maker(bytes);
    let channel = "lock:hints:0123456789ab".into();
    let mut steps = TransactionSteps::new(maker.command(), channel, Dialect::Millis, true);
    for _ in 0..3 {
        let (watch, reads) = steps.begin();
        let watches = !watch.is_empty();
        let mut answers: Vec<Value> = watches.then_some(Value::Okay).into_iter().collect();
        for read in &reads {
            let name = read.args_iter().next().map(|name| match name {
                redis::Arg::Simple(name) => String::from_utf8_lossy(name).into_owned(),
                _ => String::new(),
            });
            answers.push(maker.answer(&name.unwrap_or_default()));
        }
        answers.extend(watches.then_some(Value::Okay));
        let listens = maker.byte() % 2 == 0;
        let Ok(mut next) = steps.read(answers) else { return };
        while let NextStep::AskListeners(channels) = next {
            next = steps.hear(channels.into_iter().map(|channel| (channel, listens)));
        }
        match next {
            NextStep::Write(writes) => {
                let mut answers: Vec<Value> =
                    writes.iter().map(|_| Value::SimpleString("QUEUED".into())).collect();
                let exec = match maker.byte() % 4 {
                    0 => maker.value(2),
                    _ => Value::Array(writes.iter().map(|_| Value::Int(maker.number())).collect()),
                };
                answers.push(exec);
                if let Ok(NextStep::Done(Ok(answer))) = steps.executed(answers) {
                    if steps.asks_why(&answer).is_some() {
                        TransactionSteps::explained(answer, &maker.value(2));
                    }
                    return;
                }
            }
            NextStep::Done(_) | NextStep::AskType(_) => return,
            NextStep::Again | NextStep::Aborted | NextStep::AskListeners(_) => {}
        }
    }
}

pub(crate) fn slots(bytes: &[u8]) {
    let mut maker = Maker(bytes);
    let answers = [maker.value(5), maker.value(2)];
    if let Ok(view) = nodes::fuzzed::slots(&answers) {
        assert!(view <= 65_536 * 9);
    }
}

pub(crate) fn sentinel(bytes: &[u8]) {
    let mut maker = Maker(bytes);
    let reports: BTreeSet<u8> = (0..maker.byte() % 4).collect();
    let answers = reports.iter().map(|_| [maker.value(2), maker.value(3), maker.value(4)]);
    nodes::fuzzed::sentinels(&answers.collect::<Vec<_>>());
}
