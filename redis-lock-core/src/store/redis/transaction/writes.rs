//! The commands that change a lock on the server to what the model has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::snapshot::{Snapshot, is_ours, unmarked};
use crate::domain::clock::Moment;
use crate::domain::mark::Mark;
use crate::domain::names::Names;
use crate::domain::token::WAITERS_MARK;
use crate::store::memory::entry::{Entry, StoredWaiter};
use crate::store::memory::holders::StoredHolder;
use crate::store::redis::dialect::{expire, set, words};

/// Compares a lock before and after a command.
pub(super) struct Writes<'a> {
    pub(super) names: &'a Names,
    pub(super) snapshot: &'a Snapshot,
    pub(super) before: &'a Entry,
    pub(super) after: &'a Entry,
}

impl Writes<'_> {
    pub(super) fn commands(&self) -> Vec<Cmd> {
        let mut out = Vec::new();
        self.queue(&mut out);
        self.latest(&mut out);
        self.lock(&mut out);
        self.value(&mut out);
        self.shared(&mut out);
        self.fence(&mut out);
        self.tombstones(&mut out);
        out
    }

    fn lock(&self, out: &mut Vec<Cmd>) {
        let main = self.names.main();
        match (self.before.holders.first(), self.after.holders.first()) {
            (None, None) => {}
            (Some(_), None) => out.push(words(["DEL", main])),
            (Some(before), Some(after)) if before.token == after.token => {
                self.same_holder(before, after, out)
            }
            (before, Some(after)) => {
                let mut cmd = set(main, value_of(after), self.left(after.end));
                if before.is_some() && Mark::read(&after.token).is_some() {
                    // Where the token's lease has ended since, no mark is made.
                    cmd.arg("XX");
                }
                out.push(cmd);
            }
        }
    }

    /// The holder is the same. Its lease may have another end, or a client waits for it now.
    fn same_holder(&self, before: &StoredHolder, after: &StoredHolder, out: &mut Vec<Cmd>) {
        let main = self.names.main();
        let is_new = |stands: &str| after.waited_for && !unmarked(stands).1 && is_ours(stands);
        let newly_marked = self.snapshot.value().is_some_and(is_new);
        if let Some(marked) = self.snapshot.marked().filter(|_| newly_marked) {
            // The rest of the lease was read a moment ago, so this lengthens the lease by that
            // moment at most. One that has ended since stays ended.
            let mut mark = set(main, marked, self.left(after.end));
            mark.arg("XX");
            out.push(mark);
        } else if after.end != before.end {
            out.push(match self.left(after.end) {
                Some(left) => expire(main, left),
                None => words(["PERSIST", main]),
            });
        }
    }

    fn queue(&self, out: &mut Vec<Cmd>) {
        let Some(last) = self.snapshot.last_ticket else { return };
        let (queue, waiters) = (self.names.queue(), self.names.waiters());
        let stay: BTreeSet<_> = self.after.queue.iter().map(|waiter| &waiter.token).collect();
        let gone = self.before.queue.iter().filter(|waiter| !stay.contains(&waiter.token));
        let gone: Vec<&str> = gone.map(|waiter| &*waiter.token).collect();
        if !gone.is_empty() {
            for (name, key) in [("ZREM", &queue), ("HDEL", &waiters)] {
                let mut cmd = words([name, key]);
                cmd.arg(&gone);
                out.push(cmd);
            }
        }
        let Some(waiter) = self.after.queue.iter().find(|waiter| self.is_new(waiter)) else {
            return;
        };
        if self.needs_ticket(waiter) {
            let mut cmd = words(["ZADD", &queue]);
            let ticket = match self.takes_place(waiter) {
                Some(ticket) => format!("{ticket:.0}"),
                None => ticket(self.snapshot.now, last),
            };
            cmd.arg(ticket).arg(&*waiter.token);
            out.push(cmd);
        }
        let until = waiter.until.since(Moment::START).as_millis();
        let mut cmd = words(["HSET", &waiters]);
        cmd.arg(&*waiter.token).arg(format!("{until} {}", waiter.manager));
        out.push(cmd);
        let end = self.after.queue_end.unwrap_or(waiter.until);
        let lasts = end.since(self.snapshot.now);
        out.extend([&queue, &waiters].map(|key| expire(key, lasts)));
    }

    /// The ticket of the place that a newest call takes from the one before it.
    fn takes_place(&self, waiter: &StoredWaiter) -> Option<f64> {
        let is_in =
            |entry: &Entry, token: &Arc<str>| entry.queue.iter().any(|it| it.token == *token);
        let before = self.before.latest.back().filter(|before| is_in(self.before, before))?;
        let takes = self.after.latest.back() == Some(&waiter.token) && !is_in(self.after, before);
        self.snapshot.newest_tickets.1.filter(|_| takes)
    }

    /// Whether a waiter is new, or has left and come again, and so needs a place at the end.
    fn needs_ticket(&self, waiter: &StoredWaiter) -> bool {
        let stays = |known: &&StoredWaiter| {
            self.after.queue.iter().any(|waiter| waiter.token == known.token)
        };
        let is_last = |last: Option<&StoredWaiter>| last.is_some_and(|it| it.token == waiter.token);
        self.takes_place(waiter).is_some()
            || is_last(self.after.queue.back()) && !is_last(self.before.queue.iter().rfind(stays))
    }

    /// Whether a waiter is new, or keeps its place for longer. A command changes one waiter at
    /// most.
    fn is_new(&self, waiter: &StoredWaiter) -> bool {
        let known = self.before.queue.iter().find(|known| known.token == waiter.token);
        known.is_none_or(|known| known.until != waiter.until || known.manager != waiter.manager)
    }

    fn value(&self, out: &mut Vec<Cmd>) {
        if let Some((value, until)) = &self.after.value
            && self.before.value.is_none()
        {
            let lasts = Some(until.since(self.snapshot.now));
            out.push(set(&self.names.value(), value.as_str(), lasts));
        }
    }

    fn latest(&self, out: &mut Vec<Cmd>) {
        let key = self.names.latest();
        let (before, after) = (&self.before.latest, &self.after.latest);
        match after.back() {
            None if before.is_empty() => return,
            None => return out.push(words(["DEL", &key])),
            Some(last) if before.back() != Some(last) => {
                let mut cmd = words(["ZADD", &key]);
                cmd.arg(ticket(self.snapshot.now, self.snapshot.newest_tickets.0)).arg(&**last);
                out.push(cmd);
            }
            Some(_) => {}
        }
        let old: Vec<&str> =
            before.iter().filter(|it| !after.contains(it)).map(|it| &**it).collect();
        if !old.is_empty() {
            let mut cmd = words(["ZREM", &key]);
            cmd.arg(old);
            out.push(cmd);
        }
        if let Some(end) =
            self.after.latest_end.filter(|_| self.after.latest_end != self.before.latest_end)
        {
            out.push(expire(&key, end.since(self.snapshot.now)));
        }
    }

    fn shared(&self, out: &mut Vec<Cmd>) {
        let key = self.names.shared();
        let none = BTreeSet::new();
        let before = self.before.shared.as_ref().map_or(&none, |(_, tokens, _)| tokens);
        match &self.after.shared {
            None if self.before.shared.is_some() => out.push(words(["DEL", &key])),
            None => {}
            Some((value, tokens, until)) => {
                let gone: Vec<&str> = before.difference(tokens).map(|token| &**token).collect();
                if !gone.is_empty() {
                    let mut cmd = words(["HDEL", &key]);
                    cmd.arg(&gone);
                    out.push(cmd);
                }
                if tokens.difference(before).next().is_none() {
                    return;
                }
                let mut cmd = words(["HMSET", &key, "", value.as_str()]);
                tokens.difference(before).for_each(|token| {
                    cmd.arg(&**token).arg("");
                });
                out.push(cmd);
                out.push(expire(&key, until.since(self.snapshot.now)));
            }
        }
    }

    fn fence(&self, out: &mut Vec<Cmd>) {
        let Some(after) = &self.after.fence else { return };
        let (number, owner) = after.of();
        if self.before.fence.as_ref().is_some_and(|before| before.of() == (number, owner)) {
            return;
        }
        let lasts = after.until.since(self.snapshot.now);
        let text = format!("{number} {owner}");
        out.push(set(&self.names.fence(), &text, Some(lasts)));
    }

    fn tombstones(&self, out: &mut Vec<Cmd>) {
        for (token, tombstone) in &self.after.tombstones {
            if tombstone.until != Moment::NEVER {
                let lasts = Some(tombstone.until.since(self.snapshot.now));
                out.push(set(&self.names.tombstone(token), tombstone.reason.as_bytes(), lasts));
            }
        }
    }

    fn left(&self, end: Moment) -> Option<Duration> {
        (end != Moment::NEVER).then(|| end.since(self.snapshot.now))
    }
}

/// The value of a holder, which has a mark when a client waits.
pub(super) fn value_of(holder: &StoredHolder) -> String {
    let mut value = holder.token.to_string();
    if holder.waited_for {
        value.push(WAITERS_MARK);
    }
    value
}

/// The next ticket. The server's clock may have been set back; the order must not follow it. Like the
/// scripts it counts in doubles, which have an answer to whatever number another program wrote there.
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds since 1970 are exact in a double until the year 2255"
)]
fn ticket(now: Moment, last: f64) -> String {
    let micros = now.since(Moment::START).as_micros() as f64;
    let next = if last >= micros { last + 1.0 } else { micros };
    format!("{next:.0}")
}
