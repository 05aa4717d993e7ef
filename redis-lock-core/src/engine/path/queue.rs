//! The entries of a place: those that were written and have no outcome, and those that wait for that.

use std::collections::VecDeque;

use super::QueueEntry;

/// The entries in their order. Each stays in place until it has its outcome.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Those that were written come first. An entry with an outcome leaves a gap, until it comes first.
    entries: VecDeque<Option<QueueEntry>>,
    /// How many of them were written, with the gaps.
    written: usize,
    /// The sequence number of the first one. The others follow without gaps.
    first: u64,
    /// For how many of them a caller waited when they were written.
    awaited: usize,
}

impl Queue {
    pub(super) fn put(&mut self, entry: QueueEntry) {
        self.entries.push_back(Some(entry));
    }

    pub(super) fn has_written(&self) -> bool {
        self.written > 0
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.entries.len() > self.written
    }

    /// Whether a caller waits for one of the answers. A caller that got a time-out counts until the
    /// answer comes.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// The sequence number of the entry that is written next.
    pub(super) fn next_seq(&self) -> u64 {
        self.first.wrapping_add(self.written as u64)
    }

    /// The entry that is written next.
    pub(super) fn next(&mut self) -> Option<&mut QueueEntry> {
        self.entries.get_mut(self.written)?.as_mut()
    }

    /// The next entry was written.
    pub(super) fn on_written(&mut self) {
        if let Some(entry) = self.next() {
            entry.is_awaited = entry.origin.is_awaited();
            self.awaited += usize::from(entry.is_awaited);
            self.written += 1;
        }
    }

    /// Drops the next entry.
    pub(super) fn skip(&mut self) {
        self.entries.remove(self.written);
    }

    fn index(&self, seq: u64) -> Option<usize> {
        let index = seq.wrapping_sub(self.first).try_into().ok()?;
        (index < self.written).then_some(index)
    }

    /// An entry that was written and has no outcome.
    pub(super) fn get(&self, seq: u64) -> Option<&QueueEntry> {
        self.entries.get(self.index(seq)?)?.as_ref()
    }

    /// Takes out such an entry.
    pub(super) fn take(&mut self, seq: u64) -> Option<QueueEntry> {
        let index = self.index(seq)?;
        let entry = self.entries.get_mut(index)?.take()?;
        self.awaited -= usize::from(entry.is_awaited);
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first = self.first.wrapping_add(1);
            self.written -= 1;
        }
        Some(entry)
    }

    /// The oldest entry that was written and has no outcome.
    pub(super) fn oldest(&self) -> Option<&QueueEntry> {
        self.written().next()
    }

    pub(super) fn written(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().take(self.written).flatten()
    }

    pub(super) fn waiting(&self) -> impl DoubleEndedIterator<Item = &QueueEntry> {
        self.entries.iter().skip(self.written).flatten()
    }

    pub(super) fn waiting_mut(&mut self) -> impl Iterator<Item = &mut QueueEntry> {
        self.entries.iter_mut().skip(self.written).flatten()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().flatten()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut QueueEntry> {
        self.entries.iter_mut().flatten()
    }

    /// Takes out the oldest entry that was written and has no outcome.
    pub(super) fn pop_written(&mut self) -> Option<QueueEntry> {
        let seq = self.first;
        self.has_written().then(|| self.take(seq)).flatten()
    }

    pub(super) fn take_waiting(&mut self) -> Vec<QueueEntry> {
        self.entries.drain(self.written..).flatten().collect()
    }
}
