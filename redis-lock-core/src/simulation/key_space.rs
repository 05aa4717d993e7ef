//! A server without scripts: its keys, as the commands of transactions read and write them, and which commands are
//! no transactions there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Cmd, Value};

use crate::domain::clock::Moment;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::Verb;
use crate::store::memory::entry::{Entry, StoredWaiter, Tombstone};
use crate::store::memory::fences::Last;
use crate::store::memory::holders::StoredHolder;

/// A server that is used without scripts.
#[derive(Default)]
pub(super) struct TransactionServer {
    pub(super) keys: KeySpace,
    /// Whether a transaction is aborted when a watched key has expired, as from Redis 6.0.9 on.
    pub(super) notices_expiry: bool,
    /// Whether it queues what needs no memory when it is full, as Valkey 9 does and Redis does not.
    pub(super) queues_when_full: bool,
}

/// Whether a command is no transaction where there are no scripts.
pub(super) fn goes_on_link(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Take { .. }
            | Verb::Why { .. }
            | Verb::InUse { .. }
            | Verb::Ping
            | Verb::Probe
            | Verb::Scan { .. }
            | Verb::Fetch
    )
}

/// All keys. Times are milliseconds of the server's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySpace {
    keys: BTreeMap<String, Stored>,
    /// How often each key was written.
    writes: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
struct Stored {
    value: Data,
    end: Option<u64>,
}

#[derive(Clone, Debug)]
enum Data {
    Text(Vec<u8>),
    Sorted(Vec<(String, f64)>),
    Hash(BTreeMap<String, String>),
}

/// What was watched: each key, how often it had been written, and when it ends.
pub(super) type WatchedKeys = Vec<(String, u64, Option<u64>)>;

/// The words of a command.
fn words(cmd: &Cmd) -> Vec<Vec<u8>> {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    };
    cmd.args_iter().map(word).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a full server refuses a command because it needs memory.
pub(super) fn needs_memory(cmd: &Cmd) -> bool {
    words(cmd).first().is_some_and(|name| [&b"SET"[..], b"ZADD", b"HSET"].contains(&&**name))
}

impl KeySpace {
    /// The commands of a transaction watch these keys from now on.
    pub(super) fn watch(&self, keys: &[String], now: u64) -> WatchedKeys {
        let watched = |key: &String| {
            let end = self.standing(key, now).and_then(|stored| stored.end);
            (key.clone(), self.writes.get(key).copied().unwrap_or(0), end)
        };
        keys.iter().map(watched).collect()
    }

    /// Whether a transaction is aborted: a watched key was written, or, where the server notices that,
    /// has expired.
    pub(super) fn has_changed(
        &self,
        watched: &WatchedKeys,
        now: u64,
        notices_expiry: bool,
    ) -> bool {
        watched.iter().any(|(key, writes, end)| {
            self.writes.get(key).copied().unwrap_or(0) != *writes
                || notices_expiry && end.is_some_and(|end| end < now)
        })
    }

    fn standing(&self, key: &str, now: u64) -> Option<&Stored> {
        self.keys.get(key).filter(|stored| stored.end.is_none_or(|end| end >= now))
    }

    fn touch(&mut self, key: &str) {
        *self.writes.entry(key.to_owned()).or_default() += 1;
    }

    /// A key is lost, as one is that is evicted or deleted by an operator.
    pub(super) fn lose(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            self.touch(key);
        }
    }

    pub(super) fn clear(&mut self) {
        for key in std::mem::take(&mut self.keys).into_keys() {
            self.touch(&key);
        }
    }

    /// Executes a command at a time in microseconds. Messages go to `published`, with their channels.
    pub(super) fn execute(
        &mut self,
        cmd: &Cmd,
        micros: u64,
        published: &mut Vec<(String, String)>,
    ) -> Value {
        let (words, now) = (words(cmd), micros / 1_000);
        let name = text(&words[0]);
        let word = |at: usize| text(words.get(at).map_or(&[][..], Vec::as_slice));
        let key = word(1);
        if name != "PUBLISH" && name != "TIME" && self.standing(&key, now).is_none() {
            self.keys.remove(&key);
        }
        let rest: Vec<String> = (2..words.len()).map(word).collect();
        match name.as_str() {
            "TIME" => Value::Array(
                [micros / 1_000_000, micros % 1_000_000].map(|it| bulk(&it.to_string())).into(),
            ),
            "GET" => match self.keys.get(&key).map(|it| &it.value) {
                Some(Data::Text(bytes)) => Value::BulkString(bytes.clone()),
                _ => Value::Nil,
            },
            "GETRANGE" => match self.keys.get(&key).map(|it| &it.value) {
                Some(Data::Text(bytes)) => {
                    let end = word(3).parse::<usize>().expect("a position").saturating_add(1);
                    let start = word(2).parse::<usize>().expect("a position").min(bytes.len());
                    Value::BulkString(bytes[start..end.clamp(start, bytes.len())].to_vec())
                }
                _ => Value::BulkString(Vec::new()),
            },
            "PTTL" => Value::Int(match self.keys.get(&key).map(|it| it.end) {
                None => -2,
                Some(None) => -1,
                Some(Some(end)) => (end - now) as i64,
            }),
            "ZRANGE" => self.scores(&key),
            "HGETALL" => match self.keys.get(&key).map(|it| &it.value) {
                Some(Data::Hash(fields)) => {
                    let flat = fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]);
                    Value::Array(flat.collect())
                }
                _ => Value::Array(Vec::new()),
            },
            "PUBLISH" => {
                published.push((key, word(2)));
                Value::Int(1)
            }
            _ => {
                let answer = self.write(&name, &key, &words[2..], &rest, now);
                if !matches!(answer, Value::Int(0) | Value::Nil) {
                    self.touch(&key);
                }
                answer
            }
        }
    }

    fn scores(&self, key: &str) -> Value {
        let Some(Data::Sorted(members)) = self.keys.get(key).map(|it| &it.value) else {
            return Value::Array(Vec::new());
        };
        let flat = members.iter().flat_map(|(name, at)| [bulk(name), bulk(&at.to_string())]);
        Value::Array(flat.collect())
    }

    fn write(
        &mut self,
        name: &str,
        key: &str,
        bytes: &[Vec<u8>],
        rest: &[String],
        now: u64,
    ) -> Value {
        match name {
            "SET" => {
                let exists = self.keys.contains_key(key);
                let has = |option: &str| rest.iter().skip(1).any(|word| word == option);
                if has("NX") && exists || has("XX") && !exists {
                    return Value::Nil;
                }
                let px = rest.iter().position(|word| word == "PX");
                let end =
                    px.map(|at| now.saturating_add(rest[at + 1].parse().expect("milliseconds")));
                let value = Data::Text(bytes[0].clone());
                self.keys.insert(key.to_owned(), Stored { value, end });
                Value::Okay
            }
            "PEXPIRE" => self.at(key, |stored| {
                stored.end = Some(now + rest[0].parse::<u64>().expect("milliseconds"));
                1
            }),
            "PERSIST" => self.at(key, |stored| i64::from(stored.end.take().is_some())),
            "DEL" => Value::Int(i64::from(self.keys.remove(key).is_some())),
            "ZADD" => {
                let fresh = || Stored { value: Data::Sorted(Vec::new()), end: None };
                self.keys.entry(key.to_owned()).or_insert_with(fresh);
                self.at(key, |stored| {
                    let Data::Sorted(members) = &mut stored.value else { return 0 };
                    let before = members.len();
                    members.retain(|(member, _)| *member != rest[1]);
                    members.push((rest[1].clone(), rest[0].parse().expect("a number")));
                    members.sort_by(|one, other| {
                        one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0))
                    });
                    // Also a member that was there is written.
                    (members.len() - before).max(1) as i64
                })
            }
            "HSET" => {
                let fresh = || Stored { value: Data::Hash(BTreeMap::new()), end: None };
                self.keys.entry(key.to_owned()).or_insert_with(fresh);
                self.at(key, |stored| {
                    let Data::Hash(fields) = &mut stored.value else { return 0 };
                    fields.insert(rest[0].clone(), rest[1].clone());
                    1
                })
            }
            "ZREM" | "HDEL" => self.take_out(key, rest),
            other => panic!("the key space knows no {other}"),
        }
    }

    fn at(&mut self, key: &str, change: impl FnOnce(&mut Stored) -> i64) -> Value {
        Value::Int(self.keys.get_mut(key).map_or(0, change))
    }

    fn take_out(&mut self, key: &str, members: &[String]) -> Value {
        let mut left = 1;
        let answer = self.at(key, |stored| {
            let gone = |member: &String| members.contains(member);
            let (before, after) = match &mut stored.value {
                Data::Sorted(all) => {
                    let before = all.len();
                    all.retain(|(member, _)| !gone(member));
                    (before, all.len())
                }
                Data::Hash(all) => {
                    let before = all.len();
                    all.retain(|member, _| !gone(member));
                    (before, all.len())
                }
                Data::Text(_) => return 0,
            };
            left = after;
            (before - after) as i64
        });
        if left == 0 {
            self.keys.remove(key);
        }
        answer
    }

    /// A lock in the form of the model.
    pub(super) fn entry(&self, names: &Names, now: u64) -> Entry {
        let end = |stored: &Stored| stored.end.map_or(Moment::NEVER, moment);
        let mut entry = Entry::default();
        let mut holders = Vec::new();
        if let Some(stored) = self.standing(names.main(), now)
            && let Data::Text(bytes) = &stored.value
        {
            let value = text(bytes);
            let token = value.strip_suffix('+').unwrap_or(&value);
            holders.push(StoredHolder::of_mutex(token.into(), end(stored), token != value));
        }
        entry.holders = holders.into_iter().collect();
        if let Some(stored) = self.standing(&names.queue(), now)
            && let Data::Sorted(members) = &stored.value
        {
            entry.queue_end = stored.end.map(moment);
            entry.queue = members.iter().map(|(token, _)| self.waiter(token, names, now)).collect();
        }
        if let Some(stored) = self.standing(&names.fence(), now)
            && let Data::Text(bytes) = &stored.value
        {
            entry.fence = Last::read(&text(bytes));
            if let Some(last) = &mut entry.fence {
                last.until = end(stored);
            }
        }
        let prefix = names.tombstone("");
        let all = self.keys.range(prefix.clone()..);
        for (key, stored) in all.take_while(|(key, _)| key.starts_with(&prefix)) {
            if let (true, Data::Text(bytes)) = (self.standing(key, now).is_some(), &stored.value) {
                let tombstone = Tombstone { reason: text(bytes).into(), until: end(stored) };
                entry.tombstones.insert(key[prefix.len()..].into(), tombstone);
            }
        }
        entry
    }

    fn waiter(&self, token: &str, names: &Names, now: u64) -> StoredWaiter {
        let place = match self.standing(&names.waiters(), now).map(|it| &it.value) {
            Some(Data::Hash(fields)) => fields.get(token).and_then(|it| it.split_once(' ')),
            _ => None,
        };
        let (until, manager) = place.unwrap_or(("0", "-"));
        let until = moment(until.parse().unwrap_or(0));
        let (token, manager): (Arc<str>, Arc<str>) = (token.into(), manager.into());
        StoredWaiter { token, kind: Kind::Mutex, slotted: false, until, manager }
    }
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn moment(millis: u64) -> Moment {
    Moment::START.after(Duration::from_millis(millis))
}
