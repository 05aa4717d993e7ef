//! Sends queued entries, and says who has to act next.

use std::collections::VecDeque;
use std::sync::MutexGuard;

use super::{ConnectionState, Path, QueueEntry, Reader, SentEntry, Settled, Traffic, broken};
use crate::domain::clock::Moment;
use crate::engine::sender::Sender;
use crate::store::outbound::Outbound;

/// The smallest batch that is sent while more commands are about to follow.
pub(super) const MIN_BATCH: usize = 4;

/// How many batches are under way at once: the server executes one while the answers of another are
/// read and a third is prepared. Where there are several nodes, they share them.
pub(super) const MAX_BATCHES: usize = 3;

/// How many batches one thread sends for all before it leaves them to others.
pub(super) const MOST_ROUNDS: usize = 4;

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
        let mut traffic = self.traffic();
        let mut after = traffic.after_put(by, results);
        if traffic.aside.is_some() {
            let batch = traffic.batch;
            traffic = self.send_aside(traffic, batch, results);
            after = traffic.after_aside();
        }
        let due = traffic.due();
        drop(traffic);
        match (after, by) {
            (After::WakeTask, _) => self.task_news.wake(),
            (After::Nothing | After::WakeEngine, Sender::Task(here))
                if self.busy.note_command() =>
            {
                let opens = self.traffic().can_read_on(here);
                return (if opens { After::OpenReader } else { after }, due);
            }
            _ => {}
        }
        (after, due)
    }

    /// Encodes and sends everything in the queue. Returns who has to act for what is left.
    pub(crate) fn push_out<'a>(
        &'a self,
        mut traffic: MutexGuard<'a, Traffic>,
        results: &mut Vec<Settled>,
    ) -> After {
        traffic.write_all();
        traffic.send(results);
        // What others encode meanwhile goes in the same way: they should not wait for the lock until it is
        // sent.
        let mut traffic = self.send_aside(traffic, 1, results);
        // What is left after this the socket does not take.
        traffic.flush(results);
        traffic.after_aside()
    }

    /// Sends without the lock what is to be sent. While one thread is at it, others only encode, and it goes
    /// on when they have encoded `enough`.
    fn send_aside<'a>(
        &'a self,
        mut traffic: MutexGuard<'a, Traffic>,
        enough: usize,
        results: &mut Vec<Settled>,
    ) -> MutexGuard<'a, Traffic> {
        let mut rounds = 0;
        while let Some((epoch, mut output)) = traffic.aside.take() {
            drop(traffic);
            output.send();
            traffic = self.traffic();
            rounds += 1;
            let goes_on = rounds < MOST_ROUNDS && output.is_sent();
            traffic.put_back(epoch, output, goes_on.then_some(enough), results);
        }
        traffic
    }

    /// Whether the commands of tasks to both nodes count for each other.
    #[cfg(test)]
    pub(crate) fn counts_tasks_with(&self, other: &Self) -> bool {
        self.busy.counts_with(&other.busy)
    }
}

impl Traffic {
    fn after_put(&mut self, by: Sender, results: &mut Vec<Settled>) -> After {
        let ConnectionState::Up(_) = &self.connection else {
            return if self.waiting.is_empty() { After::Nothing } else { After::WakeEngine };
        };
        if self.waiting.is_empty() && self.is_flushed() {
            return After::Nothing;
        }
        let aside = self.aside();
        let awaited = self.waiting.iter().any(|entry| entry.is_awaited());
        let was_flushed = self.is_sent();
        // The last entry was created just now, so its time saves reading the clock again.
        let now = self.waiting.back().map_or_else(Moment::now, |last| last.sent);
        self.note_asker(by, now);
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
            // An entry that nobody waits for is sent with the next one that somebody waits for. The
            // reading task runs after the tasks that are running now, and sends what they have
            // queued.
            Reader::Task(id) if by == Sender::Task(id) => {
                if idle && !self.is_more_to_come() || self.unsent() >= self.batch {
                    self.send(results);
                }
                if self.is_reader_woken(was_flushed) { After::Nothing } else { After::WakeTask }
            }
            Reader::Task(_) => {
                self.send(results);
                if self.is_flushed() { After::Nothing } else { After::WakeTask }
            }
            // Where nobody waits for anything that is under way, all is sent at once, also a release that
            // nobody waits for: the process may end before its engine runs.
            Reader::Engine => {
                if !self.written.iter().take(self.sent_whole).any(SentEntry::is_awaited) {
                    self.flush(results);
                }
                if self.is_flushed() { After::Nothing } else { After::WakeEngine }
            }
        }
    }

    /// Whether a command is better sent with others, although its node has nothing to do: the reading task
    /// is about to flush what follows from the answers, and other nodes are at work meanwhile.
    fn is_more_to_come(&self) -> bool {
        self.task_flushes && self.batches < MAX_BATCHES
    }

    /// Whether the reading task need not be woken to send what tasks of its runtime have put.
    fn is_reader_woken(&self, was_flushed: bool) -> bool {
        self.task_flushes || self.is_flushed() || !was_flushed
    }

    /// What a planted fault sends later than the rest.
    fn aside(&mut self) -> VecDeque<QueueEntry> {
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
            let is_dropped = entry.number().is_some_and(|number| self.dropped.remove(&number));
            let command = if is_dropped { None } else { entry.take_command(now) };
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

    /// Notes how many commands are under way before their answers are read: about as many new ones
    /// are likely to follow.
    pub(super) fn size_batch(&mut self) {
        self.batch = MIN_BATCH.max(self.written.len() / self.batches);
    }

    /// Notes how many nodes there are. While one of them executes its batch, this process has the others'
    /// answers to read and commands to prepare.
    pub(crate) fn share_batches(&mut self, nodes: usize) {
        self.batches = MAX_BATCHES.div_ceil(nodes.max(1));
    }

    #[cfg(test)]
    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    pub(crate) fn is_flushed(&self) -> bool {
        match &self.connection {
            ConnectionState::Up(up) => up.wire.is_flushed() && self.waiting.is_empty(),
            _ => self.waiting.is_empty(),
        }
    }

    /// Whether all that was written has also been sent.
    pub(crate) fn is_sent(&self) -> bool {
        !matches!(&self.connection, ConnectionState::Up(up) if !up.wire.is_flushed())
    }

    fn unsent(&self) -> usize {
        self.written.len().saturating_sub(self.sent_whole)
    }

    /// Sends as much as the socket takes, or has it sent without the lock if others are likely to want
    /// that meanwhile.
    fn send(&mut self, results: &mut Vec<Settled>) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        let output = if self.written.len() > 1 { up.wire.take_output() } else { None };
        let Some(output) = output else { return self.flush(results) };
        up.sends_aside = true;
        self.aside = Some((up.epoch, output));
        self.sent_whole = self.written.len();
    }

    /// Takes back what was sent. If this thread goes on, it sends as well what others have encoded
    /// meanwhile, provided that it is `enough`.
    fn put_back(
        &mut self,
        epoch: u64,
        output: Outbound,
        enough: Option<usize>,
        results: &mut Vec<Settled>,
    ) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        if up.epoch != epoch {
            return;
        }
        up.sends_aside = false;
        match up.wire.put_back(output) {
            Err(error) => self.close(&broken(&error), results),
            Ok(()) if enough.is_some_and(|enough| self.unsent() >= enough) => self.send(results),
            Ok(()) => {}
        }
    }

    /// What is to be done for commands that were encoded while others were sent.
    fn after_aside(&self) -> After {
        match self.reader {
            _ if self.is_flushed() => After::Nothing,
            Reader::Task(_) if self.task_flushes => After::Nothing,
            Reader::Task(_) => After::WakeTask,
            _ => After::WakeEngine,
        }
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self, results: &mut Vec<Settled>) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        if up.sends_aside {
            // That thread sees to what follows.
            return;
        }
        match up.wire.flush() {
            Ok(()) if up.wire.is_flushed() => self.sent_whole = self.written.len(),
            Ok(()) => {}
            Err(error) => self.close(&broken(&error), results),
        }
    }

    /// Encodes and sends everything in the queue.
    pub(crate) fn push_out(&mut self, results: &mut Vec<Settled>) {
        self.write_all();
        self.flush(results);
    }

    fn write_all(&mut self) {
        if !self.waiting.is_empty() {
            self.write(Moment::now());
        }
    }
}
