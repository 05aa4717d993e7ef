//! Who reads the answers of a place: the engine's thread, the callers themselves, or a task.
//!
//! An answer that the engine's thread reads costs a thread switch. So when the tasks of a runtime
//! send many commands, a task of that runtime is asked to read instead. The task uses the engine's
//! connection and decides nothing.
//!
//! ```text
//!                                    +--- the task ends, or has asked in vain ---+
//!                                    v                                           |
//!   Callers <--connected, instant-- Engine --a task that was asked to read runs--> Task
//!      |                             ^ ^                                         |
//!      +--------- closed ------------+ +-- closed, an answer is late, or quiet --+
//!                                                      (the task is deposed)
//! ```
//!
//! - An answer that a task is to read is late after 20 ms. Then the runtime's threads are blocked, or a
//!   current-thread runtime is not driven. A caller has a second to read an answer. Neither time is
//!   longer than half of the time limit.
//! - It is quiet when tasks have sent nothing for a second. The engine reads the answers to its
//!   renewals itself: passing them on would wake one more thread for each batch, and checking whether
//!   a task reads them would wake the engine all the time.
//! - A task that is deposed is woken, so that it ends. It keeps the engine and a socket until then.
//!
//! How each of them reads is in [`reading`](super::reading).

use std::time::Duration;

use super::runtime::RuntimeId;
use crate::domain::clock::Moment;
use crate::store::TaskWaker;
use crate::sync::Arc;

/// When an answer that a task is to read is late.
pub(crate) const LATE: Duration = Duration::from_millis(20);

/// When an answer that a caller is to read is late. It reads at once, unless its thread stands still in between.
/// If the engine read the answer, a runtime whose clock is paused would idle, and jump to its next timer.
const LATE_CALLER: Duration = Duration::from_secs(1);

/// When tasks that send nothing are quiet.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// After how many commands of tasks one of them is asked to read.
const MIN_COMMANDS: u32 = 200;

/// Who reads the answers.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reader {
    #[default]
    Engine,
    /// Each caller, because its answer is there at once. Another thread would read it while the caller's
    /// runtime idles, whose clock jumps then if it is paused.
    Callers,
    Task(Arc<ReadingTask>),
}

/// A task, for as long as it reads.
#[derive(Debug)]
pub(crate) struct ReadingTask {
    pub(super) runtime: RuntimeId,
    pub(super) news: TaskWaker,
}

impl ReadingTask {
    /// Makes it send what is unsent, or end. No lock may be held.
    pub(super) fn wake(&self) {
        self.news.wake();
    }
}

/// Who reads the answers of a place, who is asked to, and who was deposed.
#[derive(Debug)]
pub(crate) struct ReaderRole {
    pub(super) reader: Reader,
    /// The runtimes on which a task is asked to read: one on each.
    asked: Vec<RuntimeId>,
    /// The tasks that were not woken since they were deposed.
    pub(super) deposed: Vec<Arc<ReadingTask>>,
    /// When a task last put a command on the queue.
    pub(super) last_command: Moment,
    /// How many commands tasks have put on the queue since one of them was last asked to read.
    commands: u32,
    asks_after: u32,
}

impl Default for ReaderRole {
    fn default() -> Self {
        Self {
            reader: Reader::Engine,
            asked: Vec::new(),
            deposed: Vec::new(),
            last_command: Moment::START,
            commands: 0,
            asks_after: MIN_COMMANDS,
        }
    }
}

impl ReaderRole {
    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// At which age an answer is late.
    pub(super) fn late_after(&self) -> Duration {
        if let Reader::Callers = self.reader { LATE_CALLER } else { LATE }
    }

    /// A connection was made.
    pub(super) fn on_connected(&mut self, is_instant: bool) {
        if is_instant {
            self.reader = Reader::Callers;
        }
    }

    /// The engine reads. Without a connection there is nothing to read.
    pub(super) fn depose(&mut self) {
        if let Reader::Task(task) = std::mem::take(&mut self.reader) {
            self.deposed.push(task);
        }
    }

    /// A task has put a command on the queue. Returns whether it should be asked to read.
    pub(super) fn on_command(&mut self, runtime: RuntimeId, now: Moment) -> bool {
        self.last_command = now;
        self.commands += 1;
        if self.commands < self.asks_after {
            return false;
        }
        self.commands = 0;
        matches!(self.reader, Reader::Engine) && runtime.can_watch()
    }

    /// Asks a task of this runtime to read. Returns `false` if another one was asked.
    pub(super) fn ask(&mut self, runtime: RuntimeId) -> bool {
        let is_first = !self.asked.contains(&runtime);
        if is_first {
            self.asked.push(runtime);
        }
        is_first
    }

    /// The task that was asked has begun to read, or has given up.
    pub(super) fn on_asked(&mut self, runtime: RuntimeId) {
        self.asked.retain(|other| *other != runtime);
    }

    /// Has a task of this runtime read, if the engine does now.
    pub(super) fn pass_to(&mut self, runtime: RuntimeId) -> Option<Arc<ReadingTask>> {
        let Reader::Engine = self.reader else { return None };
        let task = Arc::new(ReadingTask { runtime, news: TaskWaker::default() });
        self.reader = Reader::Task(Arc::clone(&task));
        Some(task)
    }

    pub(super) fn is_passed_to(&self, task: &Arc<ReadingTask>) -> bool {
        matches!(&self.reader, Reader::Task(reader) if Arc::ptr_eq(reader, task))
    }

    /// Sets after how many commands a task is asked to read.
    #[cfg(test)]
    pub(crate) fn ask_after(&mut self, commands: u32) {
        self.asks_after = commands;
    }

    /// The runtime of the task that reads.
    #[cfg(test)]
    pub(crate) fn runtime(&self) -> Option<RuntimeId> {
        match &self.reader {
            Reader::Engine | Reader::Callers => None,
            Reader::Task(task) => Some(task.runtime),
        }
    }
}
