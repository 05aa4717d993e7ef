//! The role of the reader of a place: who reads its answers.

use std::time::Duration;

use crate::domain::clock::Moment;
use crate::engine::runtime::RuntimeId;

/// When only the engine has asked for this long, the engine watches the connection again.
const QUIET: Duration = Duration::from_secs(1);

/// After how many commands of tasks one of them tries to become the reader.
const MIN_COMMANDS: u32 = 200;

/// Who reads the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// The engine's thread.
    Engine,
    /// A task of this runtime.
    Task(RuntimeId),
}

/// Who reads the answers of a place, and who may.
pub(crate) struct ReaderRole {
    reader: Reader,
    /// How often the role has changed hands.
    number: u64,
    /// Whether a task has lost the role, and was not woken since.
    has_deposed: bool,
    /// When a task last put something on the queue.
    tasks_asked: Moment,
    /// Runtimes on which a task is about to become the reader.
    opening: Vec<RuntimeId>,
    /// How many commands tasks have put on the queue since one of them was last to read.
    commands: u32,
    /// After how many of them a task tries to become the reader.
    opens_after: u32,
}

impl Default for ReaderRole {
    fn default() -> Self {
        Self {
            reader: Reader::Engine,
            number: 0,
            has_deposed: false,
            tasks_asked: Moment::START,
            opening: Vec::new(),
            commands: 0,
            opens_after: MIN_COMMANDS,
        }
    }
}

impl ReaderRole {
    pub(crate) fn reader(&self) -> Reader {
        self.reader
    }

    /// Tells this time of reading from others.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Passes the role on. Returns the number of this change.
    pub(crate) fn pass_to(&mut self, reader: Reader) -> u64 {
        self.has_deposed |= matches!(self.reader, Reader::Task(_));
        self.reader = reader;
        self.number += 1;
        self.number
    }

    /// Takes out whether a task has lost the role and must be woken.
    pub(crate) fn take_deposed(&mut self) -> bool {
        std::mem::take(&mut self.has_deposed)
    }

    /// Whether the tasks of the reader's runtime have been quiet for a while. Then the engine reads the
    /// answers to its renewals itself. Passing them on would wake one more thread for each batch, and
    /// checking whether a task reads them would wake the engine all the time.
    pub(crate) fn is_quiet(&self, now: Moment) -> bool {
        self.reader != Reader::Engine && now.since(self.tasks_asked) > QUIET
    }

    /// Notes that a task has put a command on the queue. Returns whether it should try to become the reader.
    pub(crate) fn note_task(&mut self, runtime: RuntimeId, now: Moment) -> bool {
        self.tasks_asked = now;
        self.commands += 1;
        if self.commands < self.opens_after {
            return false;
        }
        self.commands = 0;
        self.reader == Reader::Engine && !self.opening.contains(&runtime) && runtime.can_watch()
    }

    /// Sets after how many commands a task tries to become the reader.
    #[cfg(test)]
    pub(crate) fn open_after(&mut self, commands: u32) {
        self.opens_after = commands;
    }

    /// Notes that a task of this runtime is going to read. Returns `false` when another one is.
    pub(crate) fn begin_opening(&mut self, runtime: RuntimeId) -> bool {
        let is_first = !self.opening.contains(&runtime);
        if is_first {
            self.opening.push(runtime);
        }
        is_first
    }

    /// Notes that the task that was going to read has begun, or given up.
    pub(crate) fn end_opening(&mut self, runtime: RuntimeId) {
        self.opening.retain(|other| *other != runtime);
    }
}
