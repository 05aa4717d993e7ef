//! Who reads the answers of a place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime;

use super::{ConnectionState, Path, Traffic};
use crate::domain::clock::Moment;

/// When nobody but the engine has asked for this long, the engine watches the connection again.
const QUIET: Duration = Duration::from_secs(1);

/// After how many commands of tasks one of them tries to become the reader.
const MIN_COMMANDS: u32 = 200;

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
    /// Whether the tasks of the reader's runtime have asked nothing for a while. What the engine asks by
    /// itself, such as renewals, it reads by itself: passing the answers on would wake one more thread for
    /// each batch, and looking whether they are read would wake the engine all the time.
    pub(crate) fn is_quiet(&self, now: Moment) -> bool {
        self.reader != Reader::Engine && now.since(self.tasks_asked) > QUIET
    }

    /// Notes that a task has put a command on the queue. Returns whether it should try to become the reader.
    pub(super) fn note_task(&mut self, runtime: runtime::Id, now: Moment) -> bool {
        self.tasks_asked = now;
        self.task_commands += 1;
        if self.task_commands < MIN_COMMANDS {
            return false;
        }
        self.task_commands = 0;
        self.can_read_on(runtime)
    }

    pub(crate) fn reader(&self) -> Reader {
        self.reader
    }

    /// Passes the role of the reader on. Returns the number of this change.
    pub(crate) fn set_reader(&mut self, reader: Reader) -> u64 {
        self.has_deposed |= matches!(self.reader, Reader::Task(_));
        self.reader = reader;
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

    fn can_read_on(&self, runtime: runtime::Id) -> bool {
        self.reader == Reader::Engine
            && !self.opening.contains(&runtime)
            && may_try()
            && matches!(&self.connection, ConnectionState::Up(up) if up.watcher.is_some() && !up.wire.is_instant())
    }
}
