//! Sends queued entries, says who has to act next, and settles the entries that are answered.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{AskedBy, ConnectionState, Path, QueueEntry, Traffic};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::engine::reader::Reader;
use crate::engine::runtime::RuntimeId;
use crate::lock::Outcome;
use crate::store::wire::{Redirect, contained};
use crate::store::{Answer, Command, Filled, Pulled};

/// How often a command may be redirected.
const MOST_HOPS: u8 = 5;

/// What a caller has to do after it put an entry on the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Nothing,
    /// Wake the engine.
    WakeEngine,
    /// Wake the reading task.
    WakeTask,
    /// Read: answers are available at once.
    Read,
    /// Ask a task of the current runtime to read, because it gets answers sooner.
    AskTask,
}

impl Path {
    /// Makes sure that queued entries are sent. Also returns by when the engine has to act at the
    /// latest. No lock may be held.
    pub(crate) fn after_put(
        &self,
        by: Option<RuntimeId>,
        results: &mut Vec<QueueEntry>,
    ) -> (After, Moment) {
        let (after, due, reader) = {
            let mut traffic = self.traffic();
            let after = traffic.after_put(by, results);
            let wakes = after == After::WakeTask && !planted!(ReaderNotWoken);
            (after, traffic.due(), wakes.then(|| traffic.role.reader().clone()))
        };
        if let Some(Reader::Task(task)) = reader {
            task.wake();
        }
        (after, due)
    }
}

impl Traffic {
    fn after_put(&mut self, by: Option<RuntimeId>, results: &mut Vec<QueueEntry>) -> After {
        if !matches!(self.connection, ConnectionState::Up(_)) {
            return if self.queue.has_waiting() { After::WakeEngine } else { After::Nothing };
        }
        if let Reader::Callers = self.role.reader() {
            return self.answer_caller();
        }
        if self.is_flushed() {
            return After::Nothing;
        }
        // Where a caller waits for what is under way, what follows goes with the next commands, in one batch.
        let waits = self.queue.is_awaited();
        let awaited = self.queue.waiting().any(|entry| entry.origin.is_awaited());
        let was_sent = self.is_sent();
        let now = self.now();
        let asks_task = by.is_some_and(|here| self.role.on_command(here, now));
        if !self.write_all(now) {
            return After::WakeEngine;
        }
        let (sends, left) = match self.role.reader() {
            // An entry that no caller waits for is sent with the next one that a caller waits for. The
            // reading task runs after the tasks that are running now, and sends what they have queued. It
            // was woken for what is unsent already.
            Reader::Task(task) if by == Some(task.runtime) => {
                (awaited && !waits, if was_sent { After::WakeTask } else { After::Nothing })
            }
            Reader::Task(_) => (true, After::WakeTask),
            // A release that no caller waits for is sent as well: the process may end before its engine
            // runs.
            Reader::Engine | Reader::Callers => (!waits, After::WakeEngine),
        };
        if sends {
            self.flush(results);
        }
        match self.is_flushed() {
            _ if asks_task => After::AskTask,
            true => After::Nothing,
            false => left,
        }
    }

    /// The answers of a caller are there as soon as it has written, and it reads them itself. If the engine
    /// has written for it meanwhile, it still leaves the answers to the caller.
    fn answer_caller(&mut self) -> After {
        match self.queue.has_waiting() || self.queue.has_written() {
            false => After::Nothing,
            true if self.write_all(self.now()) => After::Read,
            true => After::WakeEngine,
        }
    }

    /// The last entry was created just now, so its time saves reading the clock again.
    fn now(&self) -> Moment {
        self.queue.waiting().next_back().map_or_else(Moment::now, |last| last.sent)
    }

    /// Encodes the queued entries. Returns `false` if a planted fault leaves some.
    fn write_all(&mut self, now: Moment) -> bool {
        let late = self.late();
        self.write(now);
        let is_all = late.is_empty();
        late.into_iter().for_each(|entry| self.queue.put(entry));
        is_all
    }

    /// What a planted fault sends later than the rest.
    fn late(&mut self) -> Vec<QueueEntry> {
        if !planted!(LateReleases) {
            return Vec::new();
        }
        let waiting = self.queue.take_waiting().into_iter();
        let (first, rest): (Vec<_>, _) = waiting.partition(|entry| entry.origin.is_awaited());
        first.into_iter().for_each(|entry| self.queue.put(entry));
        rest
    }

    /// Encodes the queued entries.
    fn write(&mut self, now: Moment) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        loop {
            let (seq, is_oldest) = (self.queue.next_seq(), !self.queue.has_written());
            let Some(entry) = self.queue.next() else { return };
            let command = if self.dropped.take(entry) { None } else { entry.write(now) };
            let Some(command) = command else {
                // Its machine has dropped it before it was sent.
                self.queue.skip();
                continue;
            };
            if is_oldest {
                // The connection counts as silent from here on.
                up.received = up.received.max(now);
            }
            if planted!(BatchRedirected) {
                #[cfg(test)]
                entry.copy.replace(command.clone());
            }
            if std::mem::take(&mut entry.asks) {
                up.wire.push_asking(seq, command);
            } else {
                up.wire.push(seq, command);
            }
            self.queue.on_written();
        }
    }

    /// For the reader: ready when something may have arrived, or when more can be sent.
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.connection {
            ConnectionState::Up(up) => up.wire.poll_ready(context),
            _ => Poll::Pending,
        }
    }

    /// Another one reads from now on. It reads before it calls [`poll_ready`](Self::poll_ready).
    pub(crate) fn unwatch(&mut self) {
        if let ConnectionState::Up(up) = &mut self.connection {
            up.wire.unwatch();
        }
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.is_sent() && !self.queue.has_waiting()
    }

    /// Whether all that was written has also been sent.
    pub(crate) fn is_sent(&self) -> bool {
        !matches!(&self.connection, ConnectionState::Up(up) if !up.wire.is_flushed())
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self, results: &mut Vec<QueueEntry>) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        if let Err(error) = up.wire.flush() {
            self.close(&Fault::broken(&error), results);
        }
    }

    /// Encodes and sends everything in the queue.
    pub(crate) fn push_out(&mut self, results: &mut Vec<QueueEntry>) {
        if self.queue.has_waiting() {
            self.write(Moment::now());
        }
        self.flush(results);
    }

    /// Reads what has arrived, and settles the entries that are answered.
    pub(crate) fn pump(&mut self, now: Moment, results: &mut Vec<QueueEntry>) {
        while self.read(now, results) {}
    }

    /// Reads once. Returns whether there may be more.
    fn read(&mut self, now: Moment, results: &mut Vec<QueueEntry>) -> bool {
        let ConnectionState::Up(up) = &mut self.connection else { return false };
        let filled = up.wire.fill();
        if let Ok(Filled { received: true, .. }) = filled {
            up.received = now;
        }
        // Answers that arrived before the connection ended still count.
        let pulled = self.pull(results);
        self.doubt_waiting();
        match (pulled, filled) {
            (Err(fault), _) => self.close(&fault, results),
            (Ok(()), Err(error)) => self.close(&Fault::broken(&error), results),
            (Ok(()), Ok(filled)) => return filled.more,
        }
        false
    }

    /// Settles the entries that are answered.
    ///
    /// # Errors
    /// A fault if the connection can't be used any longer.
    fn pull(&mut self, results: &mut Vec<QueueEntry>) -> Result<(), Fault> {
        while let ConnectionState::Up(up) = &mut self.connection {
            let (queue, dropped) = (&self.queue, &self.dropped);
            let mut wants = |seq| !queue.get(seq).is_some_and(|entry| dropped.has(entry));
            // Of the answer that one panics over nothing is known, and nothing of those behind it.
            let pulled = contained(|| up.wire.pull(&mut wants));
            match pulled.unwrap_or_else(|fault| Some(Pulled::Broken(fault))) {
                None => return Ok(()),
                Some(Pulled::Done(seq, answer)) => self.done(seq, answer, results),
                Some(Pulled::Redirected(seq, command, redirect)) => {
                    self.redirected(seq, command, redirect, results);
                }
                Some(Pulled::Broken(fault)) => {
                    up.turned_away = true;
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    fn done(&mut self, seq: u64, answer: Result<Answer, Fault>, results: &mut Vec<QueueEntry>) {
        if let ConnectionState::Up(up) = &mut self.connection {
            up.has_answered = true;
        }
        let Some(entry) = self.queue.take(seq) else { return };
        if answer.is_err() {
            self.doubt_server(&entry, results);
        }
        let outcome = match answer {
            Ok(_) if self.is_too_late(&entry) && !planted!(LateOkCredited) => {
                Outcome::Unknown(too_late())
            }
            answer => answer.into(),
        };
        self.settle(entry, outcome, results);
        if !self.queue.has_written() && !self.queue.has_waiting() {
            self.dropped.numbers.clear();
        }
    }

    /// A command has failed, perhaps on a separate connection. If nothing has arrived since it was
    /// written, the server gets a ping.
    fn doubt_server(&mut self, entry: &QueueEntry, results: &mut Vec<QueueEntry>) {
        let ConnectionState::Up(up) = &self.connection else { return };
        let is_dropped = self.dropped.has(entry);
        let is_asked = || self.queue.written().any(|it| matches!(it.origin, AskedBy::Ping));
        if up.received <= entry.written && !is_dropped && !up.wire.is_instant() && !is_asked() {
            self.put(QueueEntry::ping(self.time_limit, Moment::now()), results);
        }
    }

    /// Another node has the key of what was asked.
    fn redirected(
        &mut self,
        seq: u64,
        command: Command,
        redirect: Redirect,
        results: &mut Vec<QueueEntry>,
    ) {
        let Some(mut entry) = self.queue.take(seq) else { return };
        entry.hops += 1;
        if entry.hops > MOST_HOPS {
            // They may go on like that for long: the next tries come ever later.
            let what = "the nodes of the cluster do not agree who has the key";
            let outcome = Outcome::Refused(Fault::new(FaultClass::Refused, what));
            return self.settle(entry, outcome, results);
        }
        if self.dropped.take(&entry) {
            // It was not executed, and its machine no longer wants it.
            return;
        }
        entry.hand = Some(Arc::clone(&self.in_hand));
        results.push(entry.redirected(Some(command), Some(redirect)));
        if planted!(BatchRedirected) {
            #[cfg(test)]
            self.redirect_all(results);
        }
    }

    /// A planted fault.
    #[cfg(test)]
    fn redirect_all(&mut self, results: &mut Vec<QueueEntry>) {
        while let Some(mut entry) = self.queue.pop_written() {
            let command = entry.copy.take();
            results.push(entry.redirected(command, None));
        }
    }

    /// An answer that comes later than this has an unknown outcome, because another node may have
    /// replaced this one before it was given.
    pub(crate) fn distrust_after(&mut self, age: Duration) {
        self.distrust_after = Some(age);
    }

    fn is_too_late(&self, entry: &QueueEntry) -> bool {
        self.distrust_after.is_some_and(|age| Moment::now().since(entry.written) > age)
    }
}

fn too_late() -> Fault {
    let what = "the answer took so long that another node may have taken the place of this one";
    Fault::new(FaultClass::Unknown, what)
}
