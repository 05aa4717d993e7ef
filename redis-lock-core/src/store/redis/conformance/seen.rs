//! The state of the server after a command, and its comparison with the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::TOLERANCE;
use crate::domain::clock::Moment;
use crate::store::ASK;
use crate::store::memory::State;
use crate::store::memory::entry::Entry;

/// The time between which a command was executed.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) before: Moment,
    pub(super) after: Moment,
}

impl Window {
    /// How much two ends that were set in this time may differ.
    pub(super) fn tolerance(self) -> Duration {
        TOLERANCE + self.after.since(self.before)
    }

    /// The times in the window between which the outcome can differ.
    pub(super) fn moments(self, state: &State) -> Vec<Moment> {
        let entries = state.entries.values();
        let ends = entries.flat_map(|entry| {
            let holders = entry.holders.iter().map(|holder| holder.end);
            let soon =
                |end: Moment| Moment::START.after(end.since(Moment::START).saturating_sub(ASK));
            let places = entry.queue.iter().map(|waiter| waiter.until);
            let known = entry.latest_end.into_iter();
            holders.chain(known).chain(places.flat_map(move |end| [soon(end), end]))
        });
        let earlier = Moment::START.after(self.before.since(Moment::START) - TOLERANCE);
        let within = ends.filter(|end| (self.before..self.after).contains(end));
        within.chain([earlier, self.before, self.after, self.after.after(TOLERANCE)]).collect()
    }
}

/// The state of the server.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at: Moment,
    pub(super) keys: BTreeMap<&'static str, OneKey>,
}

/// The state of one key: tokens, and the ends of their leases or places.
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
    /// What is shared: the value, who is to have it, and the end.
    pub(super) shared: Option<(BTreeMap<String, String>, Moment)>,
    /// By token the reason and the end.
    pub(super) tombstones: BTreeMap<String, (String, Moment)>,
}

pub(super) const LOOK: &str = "
local time = redis.call('TIME')
local answer = {}
local function ends(key)
  local finish = redis.pcall('PEXPIRETIME', key)
  if type(finish) == 'table' then
    -- Before version 7: both are of one millisecond, or they are asked once more.
    local now, left, after
    repeat
      now, left, after = redis.call('TIME'), redis.call('PTTL', key), redis.call('TIME')
    until now[1] == after[1] and math.floor(now[2] / 1000) == math.floor(after[2] / 1000)
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
    for j = 1, #holders, 2 do holders[j] = string.sub(holders[j], 3) end
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
return {time[1], time[2], answer}";

impl OneKey {
    /// The first difference, apart from what is about to end. Copies the ends into the model, so
    /// that the two don't drift apart.
    pub(super) fn difference(
        &self,
        state: &mut State,
        key: &str,
        window: Window,
    ) -> Option<&'static str> {
        let mut none = Entry::default();
        let entry = state.entries.get_mut(&format!("lock:{key}")).unwrap_or(&mut none);
        let holders = entry.holders.iter().map(|holder| (Arc::clone(&holder.token), holder.end));
        let mut ends: Vec<_> = holders.collect();
        let holders = ends.iter_mut().map(|(token, end)| (&**token, end));
        let are_same = same(&self.holders, holders, window);
        for (token, end) in ends {
            entry.holders.set_end(&token, end);
        }
        let waiters = entry.queue.iter_mut().map(|waiter| (&*waiter.token, &mut waiter.until));
        if !are_same {
            Some("holders")
        } else if !same(&self.waiters, waiters, window) {
            Some("waiters")
        } else if !self.has_queue_end(entry, window) {
            Some("end of the queue")
        } else if !self.has_fence(entry, window) {
            Some("fence")
        } else if !self.has_value(entry, window) {
            Some("value")
        } else if !self.has_latest(entry, window) {
            Some("newest calls")
        } else if !self.has_shared(entry, window) {
            Some("what is shared")
        } else if !self.has_tombstones(entry, window) {
            Some("tombstones")
        } else {
            None
        }
    }

    /// Whether both keys of the queue end when the model forgets it.
    fn has_queue_end(&self, entry: &mut Entry, window: Window) -> bool {
        let Some(end) = entry.queue_end.filter(|_| !entry.queue.is_empty()) else { return true };
        let apart = |seen: &Moment| seen.since(end) + end.since(*seen);
        entry.queue_end = self.queue_ends.first().copied().or(Some(end));
        self.queue_ends.iter().all(|seen| apart(seen) <= window.tolerance())
    }

    /// Whether the counter is the same. Copies the number into the model, because it follows the
    /// clock.
    fn has_fence(&self, entry: &mut Entry, window: Window) -> bool {
        let (seen, end, model) = match (&self.fence, &mut entry.fence) {
            (None, None) => return true,
            (Some((seen, owner, end)), Some(last)) => {
                let model = last.parts();
                if owner != model.1 {
                    return false;
                }
                (*seen, *end, model)
            }
            _ => return false,
        };
        let (number, _, until) = model;
        let apart = Duration::from_micros(number.abs_diff(seen));
        let close = end.since(*until) + until.since(end) <= window.tolerance();
        (*number, *until) = (seen, end);
        close && apart <= window.tolerance()
    }

    /// Whether the same value stands beside the lock.
    fn has_value(&self, entry: &mut Entry, window: Window) -> bool {
        let ending = |end: Moment| end <= window.after.after(TOLERANCE);
        match (&self.value, &mut entry.value) {
            (Some((seen, end)), Some((value, until))) => {
                let apart = end.since(*until) + until.since(*end);
                *until = *end;
                seen == value.as_str() && apart <= window.tolerance()
            }
            (Some((_, end)), None) => ending(*end),
            (None, Some((_, until))) => ending(*until),
            (None, None) => true,
        }
    }

    /// Whether the same newest calls are known, for as long.
    fn has_latest(&self, entry: &mut Entry, window: Window) -> bool {
        let lasts = |end: Moment| end > window.after.after(TOLERANCE);
        match (&self.latest, entry.latest_end.filter(|_| !entry.latest.is_empty())) {
            (None, None) => true,
            (Some((end, _)), None) => !lasts(*end),
            (None, Some(end)) => !lasts(end),
            (Some((seen, tokens)), Some(end)) => {
                entry.latest_end = Some(*seen);
                let apart = seen.since(end) + end.since(*seen);
                apart <= window.tolerance() && entry.latest.iter().map(|it| &**it).eq(tokens)
            }
        }
    }

    /// Whether the same is shared with the same.
    fn has_shared(&self, entry: &mut Entry, window: Window) -> bool {
        let ending = |end: Moment| end <= window.after.after(TOLERANCE);
        match (&self.shared, &mut entry.shared) {
            (Some((seen, end)), Some((value, tokens, until))) => {
                let apart = end.since(*until) + until.since(*end);
                *until = *end;
                let waits = |token: &Arc<str>| seen.contains_key(&**token);
                seen.get("").is_some_and(|it| it == value.as_str())
                    && seen.len() == tokens.len() + 1
                    && tokens.iter().all(waits)
                    && apart <= window.tolerance()
            }
            (Some((_, end)), None) => ending(*end),
            (None, Some((_, _, until))) => ending(*until),
            (None, None) => true,
        }
    }

    /// Whether there are the same tombstones, with the same reasons and ends.
    fn has_tombstones(&self, entry: &mut Entry, window: Window) -> bool {
        let mut known = 0;
        for (token, tombstone) in &mut entry.tombstones {
            let lasts = tombstone.until > window.after.after(TOLERANCE);
            match self.tombstones.get(&**token) {
                Some((reason, end)) => {
                    known += 1;
                    let apart = end.since(tombstone.until) + tombstone.until.since(*end);
                    if *reason != *tombstone.reason || apart > window.tolerance() {
                        return false;
                    }
                    tombstone.until = *end;
                }
                None if lasts => return false,
                None => {}
            }
        }
        let ending = |end: Moment| end <= window.after.after(TOLERANCE);
        let more =
            self.tombstones.iter().filter(|(token, _)| !entry.tombstones.contains_key(&***token));
        known <= self.tombstones.len() && more.into_iter().all(|(_, (_, end))| ending(*end))
    }
}

fn same<'a>(
    seen: &BTreeMap<String, Moment>,
    model: impl Iterator<Item = (&'a str, &'a mut Moment)>,
    window: Window,
) -> bool {
    let mut known = BTreeSet::new();
    let lasts = |end: Moment| end > window.after.after(TOLERANCE);
    for (token, end) in model {
        known.insert(token);
        match seen.get(token) {
            Some(seen) if seen.since(*end) + end.since(*seen) <= window.tolerance() => *end = *seen,
            Some(_) => return false,
            None if lasts(*end) => return false,
            None => {}
        }
    }
    seen.iter().all(|(token, end)| known.contains(&**token) || !lasts(*end))
}
