//! Sends queued entries, and says who has to act next and who reads the answers.

use std::collections::VecDeque;

use super::reader_role::Reader;
use super::{ConnectionState, Path, QueueEntry, SentEntry, Settled, Traffic, broken};
use crate::domain::clock::Moment;
use crate::engine::runtime::Sender;

/// What a caller has to do after it put an entry on the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Nothing,
    /// Wake the engine.
    WakeEngine,
    /// Wake the reading task.
    WakeTask,
    /// Read: answers are available at once.
    Pump,
    /// Let a task of the current runtime become the reader, because it gets answers sooner.
    OpenReader,
}

impl Path {
    /// Makes sure that queued entries are sent. Also returns by when the engine has to act at the
    /// latest. No lock may be held.
    pub(crate) fn after_put(&self, by: Sender, results: &mut Vec<Settled>) -> (After, Moment) {
        let (after, due) = {
            let mut traffic = self.traffic();
            (traffic.after_put(by, results), traffic.due())
        };
        if after == After::WakeTask && !planted!(ReaderNotWoken) {
            self.task_news.wake();
        }
        (after, due)
    }
}

impl Traffic {
    fn after_put(&mut self, by: Sender, results: &mut Vec<Settled>) -> After {
        let ConnectionState::Up(up) = &self.connection else {
            return if self.waiting.is_empty() { After::Nothing } else { After::WakeEngine };
        };
        let is_instant = up.wire.is_instant();
        // The engine may have sent it meanwhile, but leaves the answer to its caller.
        let is_answered = is_instant && !self.written.is_empty();
        if self.waiting.is_empty() && self.is_flushed() && !is_answered {
            return After::Nothing;
        }
        let late = self.late();
        // Where a caller waits for what is under way, what follows goes with the next commands, in one batch.
        let waits = self.written.iter().any(SentEntry::is_awaited);
        let awaited = self.waiting.iter().any(|entry| entry.is_awaited());
        let was_sent = self.is_sent();
        // The last entry was created just now, so its time saves reading the clock again.
        let now = self.waiting.back().map_or_else(Moment::now, |last| last.sent);
        let opens = matches!(by, Sender::Task(here) if self.role.note_task(here, now))
            && self.can_be_watched();
        self.write(now);
        if !late.is_empty() {
            self.waiting.extend(late);
            return After::WakeEngine;
        }
        if is_instant {
            return After::Pump;
        }
        match self.role.reader() {
            // An entry that no caller waits for is sent with the next one that a caller waits for. The
            // reading task runs after the tasks that are running now, and sends what they have queued. It
            // was woken for what is unsent already.
            Reader::Task(id) if by == Sender::Task(id) => {
                if awaited && !waits {
                    self.flush(results);
                }
                if self.is_flushed() || !was_sent { After::Nothing } else { After::WakeTask }
            }
            Reader::Task(_) => {
                self.flush(results);
                if self.is_flushed() { After::Nothing } else { After::WakeTask }
            }
            // A release that no caller waits for is sent as well: the process may end before its engine
            // runs.
            Reader::Engine => {
                if !waits {
                    self.flush(results);
                }
                match self.is_flushed() {
                    _ if opens => After::OpenReader,
                    true => After::Nothing,
                    false => After::WakeEngine,
                }
            }
        }
    }

    /// What a planted fault sends later than the rest.
    fn late(&mut self) -> VecDeque<QueueEntry> {
        if !planted!(LateReleases) {
            return VecDeque::new();
        }
        let (first, rest) =
            std::mem::take(&mut self.waiting).into_iter().partition(|entry| entry.is_awaited());
        self.waiting = first;
        rest
    }

    /// Encodes the queued entries.
    fn write(&mut self, now: Moment) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        // An entry is large, so it is changed where it is, and moved once.
        while let Some(entry) = self.waiting.front_mut() {
            let command = if self.dropped.take(entry) { None } else { entry.take_command(now) };
            let Some(command) = command else {
                // Its machine has dropped it before it was sent.
                self.waiting.pop_front();
                continue;
            };
            if self.written.is_empty() {
                // The connection counts as silent from here on.
                up.received = up.received.max(now);
            }
            entry.written = now;
            if planted!(BatchRedirected) {
                #[cfg(test)]
                entry.copy.replace(command.clone());
            }
            let seq = self.written.next_seq();
            if std::mem::take(&mut entry.asks) {
                up.wire.push_asking(seq, command);
            } else {
                up.wire.push(seq, command);
            }
            if let Some(entry) = self.waiting.pop_front() {
                self.written.push(entry.into_sent());
            }
        }
    }

    /// Whether each caller reads its own answer, which is there at once. Another thread would read it while
    /// the caller's runtime idles, whose clock jumps then if it is paused.
    pub(crate) fn is_read_by_callers(&self) -> bool {
        matches!(&self.connection, ConnectionState::Up(up) if up.wire.is_instant())
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.is_sent() && self.waiting.is_empty()
    }

    /// Whether all that was written has also been sent.
    pub(crate) fn is_sent(&self) -> bool {
        !matches!(&self.connection, ConnectionState::Up(up) if !up.wire.is_flushed())
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self, results: &mut Vec<Settled>) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        if let Err(error) = up.wire.flush() {
            self.close(&broken(&error), results);
        }
    }

    /// Encodes and sends everything in the queue.
    pub(crate) fn push_out(&mut self, results: &mut Vec<Settled>) {
        if !self.waiting.is_empty() {
            self.write(Moment::now());
        }
        self.flush(results);
    }
}

impl Path {
    /// Wakes a task that has lost the role of the reader, so that it ends. Until then it keeps the
    /// engine and a socket. No lock may be held.
    pub(crate) fn wake_deposed(&self) {
        let has_deposed = self.traffic().role.take_deposed();
        if has_deposed {
            self.task_news.wake();
        }
    }
}

impl Traffic {
    /// Whether the role of the reader has not changed hands since, on the connection of this epoch.
    pub(crate) fn is_read_by(&self, epoch: u64, number: u64) -> bool {
        self.epoch() == Some(epoch) && self.role.number() == number
    }

    fn can_be_watched(&self) -> bool {
        matches!(&self.connection, ConnectionState::Up(up) if up.watcher.is_some() && !up.wire.is_instant())
    }
}
