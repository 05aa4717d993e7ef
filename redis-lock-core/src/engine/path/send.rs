//! How what is on the queue goes out, and who has to look after it then.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tokio::runtime;

use super::{ConnectionState, Path, QueueEntry, Reader, Settled, Traffic, broken};
use crate::domain::clock::Moment;

/// How many commands a runtime must have sent before its own task reads their answers.
const MIN_COMMANDS: u32 = 200;

/// A batch is sent when so many of its commands are made, even while others are being made.
pub(super) const MIN_BATCH: usize = 4;

/// How many batches are under way at once: the server works on one while the others are read and
/// made.
const MAX_BATCHES: usize = 3;

/// What a caller has to do after it put something on the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Nothing,
    /// The engine has something to do.
    WakeEngine,
    /// The task that reads has something to do.
    WakeTask,
    /// Answers are there.
    Pump,
    /// Answers would come sooner if a task of the present runtime read them.
    OpenReader,
}

impl Path {
    /// Sees to it that what was put goes out, and says when somebody has to look after it at the
    /// latest. To be called without any lock. `here` is the multi-threaded runtime that the caller
    /// is on.
    pub(crate) fn after_put(
        &self,
        here: Option<runtime::Id>,
        results: &mut Vec<Settled>,
    ) -> (After, Moment) {
        let mut traffic = self.traffic();
        let after = traffic.after_put(here, results);
        let due = traffic.due();
        drop(traffic);
        match (after, here) {
            (After::WakeTask, _) => self.task_news.wake(),
            (After::Nothing | After::WakeEngine, Some(here)) => {
                let busy = self.busy.fetch_add(1, Ordering::Relaxed);
                if busy % MIN_COMMANDS == MIN_COMMANDS - 1 && self.traffic().can_read_on(here) {
                    return (After::OpenReader, due);
                }
            }
            _ => {}
        }
        (after, due)
    }
}

impl Traffic {
    fn after_put(&mut self, here: Option<runtime::Id>, results: &mut Vec<Settled>) -> After {
        let ConnectionState::Up(_) = &self.connection else {
            return if self.waiting.is_empty() { After::Nothing } else { After::WakeEngine };
        };
        if self.waiting.is_empty() && self.is_flushed() {
            return After::Nothing;
        }
        let aside: VecDeque<_> = if planted!(LateReleases) {
            let (first, rest) =
                std::mem::take(&mut self.waiting).into_iter().partition(QueueEntry::is_awaited);
            self.waiting = first;
            rest
        } else {
            VecDeque::new()
        };
        let awaited = self.waiting.iter().any(QueueEntry::is_awaited);
        let was_flushed = self.is_sent();
        // When the last of them was made, which was just now: it saves looking at the clock again.
        let now = self.waiting.back().map_or_else(Moment::now, |last| last.sent);
        self.write(now);
        if !aside.is_empty() {
            self.waiting.extend(aside);
            return After::WakeEngine;
        }
        let ConnectionState::Up(up) = &self.connection else { return After::WakeEngine };
        if up.wire.is_instant() {
            return After::Pump;
        }
        let idle = awaited && self.sent_whole == 0;
        match self.reader {
            // What nobody waits for is sent with the next entry that somebody waits for; while
            // others are under way, it is sent with theirs. The task that reads runs after the
            // tasks that run now.
            Reader::Task(id) if here == Some(id) => {
                if idle || self.unsent() >= self.batch {
                    self.flush(results);
                }
                let is_woken = self.task_flushes || self.is_flushed() || !was_flushed;
                if is_woken { After::Nothing } else { After::WakeTask }
            }
            Reader::Task(_) => {
                self.flush(results);
                if self.is_flushed() { After::Nothing } else { After::WakeTask }
            }
            Reader::Engine => {
                if idle {
                    self.flush(results);
                }
                if self.is_flushed() { After::Nothing } else { After::WakeEngine }
            }
        }
    }

    /// Encodes what waits.
    fn write(&mut self, now: Moment) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        while let Some(mut entry) = self.waiting.pop_front() {
            if entry.number().is_some_and(|number| self.dropped.remove(&number)) {
                // Its machine has dropped it, and it was never sent.
                continue;
            }
            let Some(command) = entry.take_command(now) else { continue };
            if self.written.is_empty() {
                // Silence is counted from here.
                up.received = up.received.max(now);
            }
            entry.written = now;
            let seq = self.written.next_seq();
            if std::mem::take(&mut entry.asks) {
                up.wire.push_asking(seq, command);
            } else {
                up.wire.push(seq, command);
            }
            self.written.push(entry);
        }
    }

    /// Remembers how much is under way before answers are read: that many commands are likely to
    /// follow them.
    pub(super) fn size_batch(&mut self) {
        self.batch = MIN_BATCH.max(self.written.len() / MAX_BATCHES);
    }

    fn unsent(&self) -> usize {
        self.written.len().saturating_sub(self.sent_whole)
    }

    /// Sends what can be sent.
    pub(crate) fn flush(&mut self, results: &mut Vec<Settled>) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        match up.wire.flush() {
            Ok(()) if up.wire.is_flushed() => self.sent_whole = self.written.len(),
            Ok(()) => {}
            Err(error) => self.close(&broken(&error), results),
        }
    }

    /// Writes and sends all there is.
    pub(crate) fn push_out(&mut self, results: &mut Vec<Settled>) {
        if !self.waiting.is_empty() {
            self.write(Moment::now());
        }
        self.flush(results);
    }
}
