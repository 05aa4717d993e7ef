//! What the server shows after a command, and whether the model has the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::BLUR;
use crate::clock::Moment;
use crate::store::memory::State;
use crate::store::memory::entry::Entry;

/// A command was executed between these.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) before: Moment,
    pub(super) after: Moment,
}

impl Window {
    /// How far two ends may be apart that were set in it.
    pub(super) fn blur(self) -> Duration {
        BLUR + self.after.since(self.before)
    }

    /// The times that can make a difference.
    pub(super) fn moments(self, world: &State) -> Vec<Moment> {
        let entries = world.entries.values();
        let ends = entries.flat_map(|entry| {
            let holders = entry.holders.iter().map(|holder| holder.end);
            holders.chain(entry.queue.iter().map(|waiter| waiter.until))
        });
        let earlier = Moment::START.after(self.before.since(Moment::START) - BLUR);
        let within = ends.filter(|end| (self.before..self.after).contains(end));
        within.chain([earlier, self.before, self.after, self.after.after(BLUR)]).collect()
    }
}

/// What the server shows.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at: Moment,
    pub(super) keys: BTreeMap<&'static str, OneKey>,
}

/// Tokens and the ends of their leases or places.
#[derive(Debug)]
pub(super) struct OneKey {
    pub(super) holders: BTreeMap<String, Moment>,
    pub(super) waiters: BTreeMap<String, Moment>,
}

pub(super) const LOOK: &str = "
local time = redis.call('TIME')
local answer = {}
for i = 1, #KEYS, 2 do
  local holders, kind = {}, redis.call('TYPE', KEYS[i]).ok
  if kind == 'string' then
    local value = string.gsub(redis.call('GET', KEYS[i]), '+$', '')
    holders = {value, string.format('%.0f', redis.call('PEXPIRETIME', KEYS[i]))}
  elseif kind == 'zset' then
    holders = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
    -- The key must end with its last holder: a later end would keep other kinds out.
    if redis.call('PEXPIRETIME', KEYS[i]) ~= tonumber(holders[#holders]) then holders[#holders] = '0' end
    for j = 1, #holders, 2 do holders[j] = string.sub(holders[j], 3) end
  end
  answer[#answer + 1] = {holders, redis.call('HGETALL', KEYS[i + 1])}
end
return {time[1], time[2], answer}";

impl OneKey {
    /// Whether the model has the same, but for what is about to end; takes over the ends to the
    /// millisecond, so that the two don't drift apart.
    pub(super) fn agrees(&self, world: &mut State, key: &str, window: Window) -> bool {
        let mut none = Entry::default();
        let entry = world.entries.get_mut(&format!("lock:{key}")).unwrap_or(&mut none);
        let holders = entry.holders.iter_mut().map(|holder| (&*holder.token, &mut holder.end));
        let waiters = entry.queue.iter_mut().map(|waiter| (&*waiter.token, &mut waiter.until));
        same(&self.holders, holders, window) && same(&self.waiters, waiters, window)
    }
}

fn same<'a>(
    seen: &BTreeMap<String, Moment>,
    model: impl Iterator<Item = (&'a str, &'a mut Moment)>,
    window: Window,
) -> bool {
    let mut known = BTreeSet::new();
    let lasts = |end: Moment| end > window.after.after(BLUR);
    for (token, end) in model {
        known.insert(token);
        match seen.get(token) {
            Some(seen) if seen.since(*end) + end.since(*seen) <= window.blur() => *end = *seen,
            Some(_) => return false,
            None if lasts(*end) => return false,
            None => {}
        }
    }
    seen.iter().all(|(token, end)| known.contains(&**token) || !lasts(*end))
}
