//! Reads answers and hands outcomes to those who asked.

use std::time::Duration;

use super::{ConnectionState, Origin, QueueEntry, SentEntry, Settled, Traffic, broken, ping};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::lock::Outcome;
use crate::store::wire::{Redirect, contained};
use crate::store::{Answer, Command, Filled, Pulled};

/// How often a command may be redirected.
const MOST_HOPS: u8 = 5;

impl Traffic {
    /// Reads what has arrived, and settles the entries that are answered.
    pub(crate) fn pump(&mut self, now: Moment, results: &mut Vec<Settled>) {
        while self.read(now, results) {}
    }

    /// Reads once. Returns whether there may be more.
    fn read(&mut self, now: Moment, results: &mut Vec<Settled>) -> bool {
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
            (Ok(()), Err(error)) => self.close(&broken(&error), results),
            (Ok(()), Ok(filled)) => return filled.more,
        }
        false
    }

    /// Settles the entries that are answered.
    ///
    /// # Errors
    /// A fault if the connection can't be used any longer.
    fn pull(&mut self, results: &mut Vec<Settled>) -> Result<(), Fault> {
        while let ConnectionState::Up(up) = &mut self.connection {
            let (written, dropped) = (&self.written, &self.dropped);
            let mut wants = |seq| !written.get(seq).is_some_and(|entry| dropped.has(entry));
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

    fn done(&mut self, seq: u64, answer: Result<Answer, Fault>, results: &mut Vec<Settled>) {
        if let ConnectionState::Up(up) = &mut self.connection {
            up.has_answered = true;
        }
        let Some(entry) = self.written.take(seq) else { return };
        if answer.is_err() {
            self.doubt_server(&entry, results);
        }
        let outcome = match answer {
            Ok(_) if self.is_too_late(&entry) && !planted!(LateOkCredited) => {
                Outcome::Unknown(too_late())
            }
            Ok(answer) => Outcome::Answered(answer),
            Err(fault) if fault.class.is_unknown() => Outcome::Unknown(fault),
            Err(fault) => Outcome::Refused(fault),
        };
        self.settle(entry, outcome, results);
        if self.written.is_empty() && self.waiting.is_empty() {
            self.dropped.numbers.clear();
        }
    }

    /// A command has failed, perhaps on a connection of its own. When nothing has come since it was
    /// written, the server is asked whether it is there.
    fn doubt_server(&mut self, entry: &SentEntry, results: &mut Vec<Settled>) {
        let ConnectionState::Up(up) = &self.connection else { return };
        let is_dropped = self.dropped.has(entry);
        let is_asked = || self.written.iter().any(|it| matches!(it.origin, Origin::Ping));
        if up.received <= entry.written && !is_dropped && !up.wire.is_instant() && !is_asked() {
            self.put(QueueEntry::ping(ping(self.time_limit), Moment::now()), results);
        }
    }

    /// Another node has the key of what was asked.
    fn redirected(
        &mut self,
        seq: u64,
        command: Command,
        redirect: Redirect,
        results: &mut Vec<Settled>,
    ) {
        let Some(mut entry) = self.written.take(seq) else { return };
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
        let entry = Box::new(entry.with(Some(command), self.in_hand.take()));
        results.push(Settled::Redirected(entry, Some(redirect)));
        if planted!(BatchRedirected) {
            #[cfg(test)]
            self.redirect_all(results);
        }
    }

    /// A planted fault.
    #[cfg(test)]
    fn redirect_all(&mut self, results: &mut Vec<Settled>) {
        for mut entry in self.written.drain() {
            let command = entry.copy.take();
            let entry = entry.with(command, super::InHand::default());
            results.push(Settled::Redirected(Box::new(entry), None));
        }
    }

    /// An answer that comes later than this has an unknown outcome, because another node may have
    /// replaced this one before it was given.
    pub(crate) fn distrust_after(&mut self, age: Duration) {
        self.distrust_after = Some(age);
    }

    fn is_too_late(&self, entry: &SentEntry) -> bool {
        self.distrust_after.is_some_and(|age| Moment::now().since(entry.written) > age)
    }
}

fn too_late() -> Fault {
    let what = "the answer took so long that another node may have taken the place of this one";
    Fault::new(FaultClass::Unknown, what)
}
