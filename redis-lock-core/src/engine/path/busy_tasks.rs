//! When tasks have sent so much that one of them should read the answers of a path, or notify callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many commands tasks must have sent since the last try.
pub(super) const MIN_COMMANDS: u32 = 200;

/// Counts the commands of tasks to all nodes: where locks are spread over several, a runtime that is busy
/// with one of them soon asks the others.
#[derive(Debug, Default)]
pub(super) struct BusyTasks {
    sent: Arc<AtomicU32>,
    /// How many had been sent at the last try on this path.
    tried: AtomicU32,
}

impl BusyTasks {
    pub(super) fn of_another_path(&self) -> Self {
        Self { sent: Arc::clone(&self.sent), tried: AtomicU32::new(0) }
    }

    #[cfg(test)]
    pub(super) fn counts_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sent, &other.sent)
    }

    /// Notes a command that was sent on this path. Returns whether it is time for a try.
    pub(super) fn note_command(&self) -> bool {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_due = sent.wrapping_sub(self.tried.load(Ordering::Relaxed)) >= MIN_COMMANDS;
        if is_due {
            self.tried.store(sent, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(tasks: &BusyTasks, commands: u32) -> usize {
        (0..commands).filter(|_| tasks.note_command()).count()
    }

    #[test]
    fn a_path_is_tried_after_every_so_many_commands() {
        let tasks = BusyTasks::default();
        assert_eq!(tries(&tasks, MIN_COMMANDS - 1), 0);
        assert_eq!(tries(&tasks, 1), 1);
        assert_eq!(tries(&tasks, 2 * MIN_COMMANDS), 2);
    }

    #[test]
    fn commands_to_other_nodes_count() {
        let one = BusyTasks::default();
        let other = one.of_another_path();
        assert_eq!(tries(&one, MIN_COMMANDS), 1);
        assert_eq!(tries(&other, 1), 1, "it is used by a runtime that is busy");
        assert_eq!(tries(&other, MIN_COMMANDS - 1), 0, "it was tried just now");
        assert_eq!(tries(&one, 1), 1);
    }

    #[test]
    fn the_count_may_wrap_around() {
        let tasks =
            BusyTasks { sent: Arc::new(AtomicU32::new(u32::MAX - 1)), ..BusyTasks::default() };
        tasks.tried.store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(tries(&tasks, MIN_COMMANDS - 1), 0);
        assert_eq!(tries(&tasks, 1), 1);
    }
}
