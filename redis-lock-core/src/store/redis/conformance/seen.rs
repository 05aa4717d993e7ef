//! The state of the server after a command, and its comparison with the model.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::store::memory::State;
use crate::store::memory::entry::Entry;
use crate::store::memory::holders::StoredHolder;

/// The state of the server.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) keys: BTreeMap<&'static str, OneKey>,
}

/// The state of one key: tokens, and the ends of their leases or places. Behind the token of a holder is its
/// slot.
#[derive(Debug)]
pub(super) struct OneKey {
    pub(super) holders: BTreeMap<String, Moment>,
    pub(super) waiters: BTreeMap<String, Moment>,
    /// When each key of the queue ends.
    pub(super) queue_ends: Vec<Moment>,
    /// The last fencing number, its owner, and the end of the counter.
    pub(super) fence: Option<(u64, String, Moment)>,
    /// The value and its end.
    pub(super) value: Option<(String, Moment)>,
    /// Until when the newest calls are known, and their tokens.
    pub(super) latest: Option<(Moment, Vec<String>)>,
    /// The shared value, the tokens entitled to it, and its end.
    pub(super) shared: Option<(BTreeMap<String, String>, Moment)>,
    /// By token the reason and the end.
    pub(super) tombstones: BTreeMap<String, (String, Moment)>,
}

pub(super) const LOOK: &str = "
local answer = {}
local function ends(key)
  local finish = redis.pcall('PEXPIRETIME', key)
  if type(finish) == 'table' then
    -- Before version 7.
    local now, left = redis.call('TIME'), redis.call('PTTL', key)
    finish = left < 0 and 0 or now[1] * 1000 + math.floor(now[2] / 1000) + left
  end
  return string.format('%.0f', math.max(finish, 0))
end
for i = 1, #KEYS, 5 do
  local holders, kind = {}, redis.call('TYPE', KEYS[i]).ok
  if kind == 'string' then
    local value = string.gsub(redis.call('GET', KEYS[i]), '+$', '')
    holders = {value, ends(KEYS[i])}
  elseif kind == 'zset' then
    holders = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
    -- The key must end with its last holder: a later end would keep other kinds out.
    if math.abs(ends(KEYS[i]) - holders[#holders]) > 1 then holders[#holders] = '0' end
    for j = 1, #holders, 2 do
      -- What is missing to a whole millisecond is the slot.
      local finish = math.ceil(holders[j + 1])
      local part = (finish - holders[j + 1]) * 1024
      holders[j] = string.sub(holders[j], 3) .. (part > 0 and '#' .. part - 1 or '')
      holders[j + 1] = string.format('%.0f', finish)
    end
  end
  local sides, fence, stored, tombstones = {}, {}, {}, {}
  local beside = string.gsub(KEYS[i + 3], 'f$', 'v')
  if redis.call('EXISTS', beside) == 1 then stored = {redis.call('GET', beside), ends(beside)} end
  for at = 1, 2 do
    if redis.call('EXISTS', KEYS[i + at]) == 1 then
      sides[#sides + 1] = KEYS[i + at]
      sides[#sides + 1] = ends(KEYS[i + at])
    end
  end
  if redis.call('EXISTS', KEYS[i + 3]) == 1 then
    fence = {redis.call('GET', KEYS[i + 3]), ends(KEYS[i + 3])}
  end
  local sharing, shared = string.gsub(KEYS[i + 3], 'f$', 's'), {}
  if redis.call('EXISTS', sharing) == 1 then
    shared = redis.call('HGETALL', sharing)
    table.insert(shared, 1, ends(sharing))
  end
  for _, token in ipairs(ARGV) do
    local tombstone = string.gsub(KEYS[i + 3], 'f$', 'x:') .. token
    local reason = redis.call('GET', tombstone)
    if reason then
      tombstones[#tombstones + 1] = token
      tombstones[#tombstones + 1] = reason
      tombstones[#tombstones + 1] = ends(tombstone)
    end
  end
  local latest = redis.call('ZRANGE', KEYS[i + 4], 0, -1)
  if #latest > 0 then table.insert(latest, 1, ends(KEYS[i + 4])) end
  answer[#answer + 1] = {holders, redis.call('HGETALL', KEYS[i + 2]), sides, fence, stored, shared, tombstones, latest}
end
return answer";

impl OneKey {
    /// The first difference to the model, apart from what has ended.
    pub(super) fn difference(&self, state: &State, key: &str, now: Moment) -> Option<&'static str> {
        let none = Entry::default();
        let entry = state.entries.get(&format!("lock:{key}")).unwrap_or(&none);
        let named = |holder: &StoredHolder| match holder.slot {
            Some(slot) => format!("{}#{slot}", holder.token),
            None => holder.token.to_string(),
        };
        let named: Vec<_> =
            entry.holders.iter().map(|holder| (named(holder), holder.end)).collect();
        let holders = named.iter().map(|(name, end)| (&**name, (), *end));
        let waiters = entry.queue.iter().map(|waiter| (&*waiter.token, (), waiter.until));
        let tombstones =
            entry.tombstones.iter().map(|(token, it)| (&**token, &*it.reason, it.until));
        let seen = self.tombstones.iter().map(|(token, (reason, end))| (&**token, &**reason, *end));
        if living(of(&self.holders), now) != living(holders, now) {
            Some("holders")
        } else if living(of(&self.waiters), now) != living(waiters, now) {
            Some("waiters")
        } else if !self.has_queue_end(entry) {
            Some("end of the queue")
        } else if !self.has_fence(entry) {
            Some("fence")
        } else if !self.has_value(entry, now) {
            Some("value")
        } else if !self.has_latest(entry, now) {
            Some("newest calls")
        } else if !self.has_shared(entry, now) {
            Some("what is shared")
        } else if living(seen, now) != living(tombstones, now) {
            Some("tombstones")
        } else {
            None
        }
    }

    /// Whether both keys of the queue end when the model forgets it.
    fn has_queue_end(&self, entry: &Entry) -> bool {
        let end = entry.queue_end.filter(|_| !entry.queue.is_empty());
        end.is_none_or(|end| self.queue_ends.iter().all(|seen| *seen == end))
    }

    /// Whether the same value stands beside the lock.
    fn has_value(&self, entry: &Entry, now: Moment) -> bool {
        let seen = self.value.as_ref().map(|(value, end)| (&**value, *end));
        let model = entry.value.as_ref().map(|(value, end)| (value.as_str(), *end));
        let lives = |(_, end): &(&str, Moment)| *end > now;
        seen.filter(lives) == model.filter(lives)
    }

    /// Whether the same newest calls are known, for as long.
    fn has_latest(&self, entry: &Entry, now: Moment) -> bool {
        let seen = self.latest.as_ref().filter(|(end, _)| *end > now);
        let end = entry.latest_end.filter(|end| !entry.latest.is_empty() && *end > now);
        match (seen, end) {
            (Some((seen, tokens)), Some(end)) => {
                *seen == end && entry.latest.iter().map(|it| &**it).eq(tokens)
            }
            (seen, end) => seen.is_none() && end.is_none(),
        }
    }

    /// Whether the same is shared with the same.
    fn has_shared(&self, entry: &Entry, now: Moment) -> bool {
        let seen = self.shared.as_ref().filter(|(_, end)| *end > now);
        match (seen, entry.shared.as_ref().filter(|(.., until)| *until > now)) {
            (Some((seen, end)), Some((value, tokens, until))) => {
                seen.get("").is_some_and(|it| it == value.as_str())
                    && seen.len() == tokens.len() + 1
                    && tokens.iter().all(|token| seen.contains_key(&**token))
                    && end == until
            }
            (seen, model) => seen.is_none() && model.is_none(),
        }
    }

    /// Whether the counter is the same. Its end is in whole milliseconds on the server.
    fn has_fence(&self, entry: &Entry) -> bool {
        match (&self.fence, &entry.fence) {
            (None, None) => true,
            (Some((number, owner, end)), Some(last)) => {
                let apart = end.since(last.until) + last.until.since(*end);
                last.of() == (*number, owner) && apart <= Duration::from_millis(1)
            }
            _ => false,
        }
    }
}

fn of(ends: &BTreeMap<String, Moment>) -> impl Iterator<Item = (&str, (), Moment)> {
    ends.iter().map(|(token, end)| (&**token, (), *end))
}

/// Those that have not ended.
fn living<'a, T>(
    all: impl Iterator<Item = (&'a str, T, Moment)>,
    now: Moment,
) -> BTreeMap<&'a str, (T, Moment)> {
    all.filter(|(.., end)| *end > now).map(|(token, what, end)| (token, (what, end))).collect()
}
