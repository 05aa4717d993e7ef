//! Who reads the answers of a place.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime;

use super::{ConnectionState, Path, QueueEntry, SentEntry, Traffic};
use crate::domain::clock::Moment;
use crate::engine::sender::Sender;
use crate::store::Pollable;

/// When nobody but the engine has asked for this long, the engine watches the connection again.
const QUIET: Duration = Duration::from_secs(1);

/// Whether a runtime is tried now, or one has turned out to be without I/O. Then it stays so.
pub(crate) static RUNTIME_IS_TRIED: AtomicBool = AtomicBool::new(false);

/// Whether a task may become the reader. Where a panic ends the program, no task does.
fn may_try() -> bool {
    !cfg!(panic = "abort") && !RUNTIME_IS_TRIED.load(Ordering::Acquire)
}

/// Who reads the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// The engine's thread.
    Engine,
    /// A task of this runtime.
    Task(runtime::Id),
    /// A thread that waits for an answer of its own.
    Thread,
    /// Nobody, since no answer is to come. A thread that asks next is going to read.
    Nobody,
}

impl Path {
    /// Wakes a task that has lost the role of the reader, so that it ends. Until then it keeps the
    /// engine and a socket. No lock may be held.
    pub(crate) fn wake_deposed(&self) {
        let has_deposed = std::mem::take(&mut self.traffic().has_deposed);
        if has_deposed {
            self.task_news.wake();
        }
    }
}

impl Traffic {
    /// The socket of the present connection, where all answers come over one.
    pub(crate) fn pollable(&self) -> Option<(u64, Arc<dyn Pollable>)> {
        match &self.connection {
            ConnectionState::Up(up) => up.pollable.clone().map(|pollable| (up.epoch, pollable)),
            _ => None,
        }
    }

    /// Whether anything was written that has no answer yet.
    pub(crate) fn expects_answers(&self) -> bool {
        !self.written.is_empty()
    }

    /// Whether exactly one answer is to come, to what this thread put while it was blocked.
    pub(crate) fn expects_only(&self, thread: NonZeroU64) -> bool {
        let is_own = |entry: &SentEntry| entry.blocks == Some(thread);
        self.waiting.is_empty()
            && self.written.len() == 1
            && self.written.front().is_some_and(is_own)
    }

    /// Whether a thread that puts this entry waits for its answer. It waits for one at a time: a
    /// question behind its own release is for those who wait for the lock. And what was tried before is
    /// for whoever tried it.
    pub(super) fn is_waited_for(&self, entry: &QueueEntry, thread: NonZeroU64) -> bool {
        let is_second = || self.waiting.back().is_some_and(|last| last.blocks == Some(thread));
        entry.is_awaited() && !entry.is_another_try() && !is_second()
    }

    /// Whether those that read have nothing to ask any more. What the engine asks by itself, such as
    /// renewals, it reads by itself: passing the answers on would wake one more thread for each batch, and
    /// looking whether they are read would wake the engine all the time.
    pub(crate) fn is_quiet(&self, now: Moment) -> bool {
        match self.reader {
            Reader::Task(_) => now.since(self.tasks_asked) > QUIET,
            Reader::Nobody => {
                matches!(&self.connection, ConnectionState::Up(up) if now.since(up.received) > QUIET)
            }
            Reader::Engine | Reader::Thread => false,
        }
    }

    pub(super) fn note_asker(&mut self, by: Sender, now: Moment) {
        if let Sender::Task(_) = by {
            self.tasks_asked = now;
        }
    }

    pub(crate) fn reader(&self) -> Reader {
        self.reader
    }

    /// Passes the role of the reader on. Returns the number of this change.
    pub(crate) fn set_reader(&mut self, reader: Reader) -> u64 {
        self.has_deposed |= matches!(self.reader, Reader::Task(_));
        self.reader = reader;
        self.task_flushes = false;
        self.reader_number += 1;
        self.reader_number
    }

    /// Whether the role of the reader has not changed hands since, on the connection of this epoch.
    pub(crate) fn is_read_by(&self, epoch: u64, number: u64) -> bool {
        self.epoch() == Some(epoch) && self.reader_number == number
    }

    /// Notes that a task of this runtime is going to read. Returns `false` when another one is.
    pub(crate) fn begin_opening(&mut self, runtime: runtime::Id) -> bool {
        let is_first = !self.opening.contains(&runtime);
        if is_first {
            self.opening.push(runtime);
        }
        is_first
    }

    /// Notes that the task that was going to read has begun, or given up.
    pub(crate) fn end_opening(&mut self, runtime: runtime::Id) {
        self.opening.retain(|other| *other != runtime);
    }

    pub(super) fn can_read_on(&self, runtime: runtime::Id) -> bool {
        self.reader == Reader::Engine
            && !self.opening.contains(&runtime)
            && may_try()
            && matches!(&self.connection, ConnectionState::Up(up) if up.watcher.is_some() && !up.wire.is_instant())
    }
}
