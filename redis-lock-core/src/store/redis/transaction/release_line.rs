//! The connection on which lone releases are executed, by whoever has the wire.
//!
//! Through the task that executes transactions, and the driver's own task behind it, an answer
//! wakes three tasks on two threads before its caller. Here the reader of the wire reads it.

#[cfg(all(test, unix))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::RedisError;
use tokio::runtime;
use tokio::sync::mpsc;

use super::lone_release::{LineAfter, LoneOutcome, LoneRelease, NextStep};
use super::run::late;
use super::setting::Setting;
use crate::domain::clock::Moment;
use crate::store::Command;
use crate::store::redis::decode;
use crate::store::redis::direct_line::DirectLine;
use crate::store::redis::side_link::{LineSlot, SideLink};

/// A program that releases fewer locks needs no connection for them.
const FEW: u32 = 4;

/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// The outcome of a release, and its number.
pub(super) type LoneEnd = (u64, LoneOutcome);

pub(super) struct ReleaseLine {
    setting: Arc<Setting>,
    line: Option<DirectLine>,
    release: Option<LoneRelease>,
    /// Whether the next reply is that to a `DISCARD`.
    owes_discard: bool,
    /// How often the pool had become distrustful when this connection was last heard of.
    trusted: u64,
    slot: Arc<LineSlot>,
    /// Asks for a new connection.
    asks: mpsc::UnboundedSender<()>,
    has_asked: bool,
    may_ask_at: Moment,
    /// How many releases were executed in the usual way for want of a connection.
    missed: u32,
    /// The engine's.
    runtime: runtime::Handle,
}

impl ReleaseLine {
    /// To be called on the engine's runtime.
    pub(super) fn new(setting: Arc<Setting>, link: SideLink, slot: Arc<LineSlot>) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        tokio::spawn(link.serve(asked, Arc::clone(&slot)));
        Self {
            setting,
            line: None,
            release: None,
            owes_discard: false,
            trusted: 0,
            slot,
            asks,
            has_asked: false,
            may_ask_at: Moment::START,
            missed: 0,
            runtime: runtime::Handle::current(),
        }
    }

    /// Begins a release. Gives the command back if it has to be executed in the usual way.
    pub(super) fn begin(&mut self, seq: u64, command: Command) -> Option<Command> {
        if self.release.is_some() {
            return Some(command);
        }
        if self.trusted != self.setting.pool.distrusted() {
            // It may have died in the same silence.
            self.close();
        }
        let Some(line) = &mut self.line else {
            self.ask_for_line();
            return Some(command);
        };
        let (release, cmds) = LoneRelease::begin(seq, command, self.setting.terms());
        if line.send(cmds).is_err() {
            self.close();
            return Some(release.usual(false));
        }
        self.release = Some(release);
        None
    }

    /// Takes in a new connection, and what has arrived. Returns whether anything has, and the release
    /// that is over.
    pub(super) fn fill(&mut self) -> (bool, Option<LoneEnd>) {
        self.take_line();
        let Some(line) = &mut self.line else { return (false, None) };
        // Also while nothing is released: a connection that has ended wakes whoever watches it until
        // it is closed.
        let filled = line.fill();
        let received = matches!(filled, Ok(true));
        if received {
            self.trusted = self.setting.pool.distrusted();
        }
        // Replies that arrived before the end still count.
        let end = self.read().or_else(|| match filled {
            Err(error) => self.broke(error.into()),
            Ok(_) => self.give_up_late(),
        });
        (received, end)
    }

    /// When a release has to be given up.
    pub(super) fn due(&self) -> Moment {
        self.release.as_ref().map_or(Moment::NEVER, LoneRelease::due)
    }

    fn take_line(&mut self) {
        let Some(made) = self.slot.take() else { return };
        self.has_asked = false;
        if let Ok(line) = made {
            (self.line, self.owes_discard) = (Some(line), false);
            self.trusted = self.setting.pool.distrusted();
        }
    }

    fn ask_for_line(&mut self) {
        let now = Moment::now();
        self.missed = self.missed.saturating_add(1);
        if self.missed > FEW && !self.has_asked && now >= self.may_ask_at {
            (self.has_asked, self.may_ask_at) = (true, now.after(PAUSE));
            // When the other end is gone, so is the engine.
            let _ = self.asks.send(());
        }
    }

    /// Reads the replies that are complete, until a release is over.
    fn read(&mut self) -> Option<LoneEnd> {
        loop {
            let line = self.line.as_mut()?;
            let reply = match line.next_reply() {
                Ok(reply) => reply?,
                Err(what) => return self.broke(std::io::Error::other(what).into()),
            };
            if std::mem::take(&mut self.owes_discard) {
                if reply != redis::Value::Okay {
                    let what = std::io::Error::other("a transaction was not discarded");
                    return self.broke(what.into());
                }
                continue;
            }
            let Some(release) = &mut self.release else {
                return self.broke(std::io::Error::other("nobody asked for this").into());
            };
            match release.take(reply) {
                NextStep::Wait => {}
                NextStep::Send(cmds) => {
                    if let Err(error) = line.send(cmds) {
                        return self.broke(error.into());
                    }
                }
                NextStep::Over(outcome, after) => {
                    let seq = release.seq();
                    self.release = None;
                    self.tidy(after);
                    return Some((seq, outcome));
                }
            }
        }
    }

    /// Makes the connection ready for another release, or closes it.
    fn tidy(&mut self, after: LineAfter) {
        let is_ready = match (after, &mut self.line) {
            (LineAfter::Nothing, _) => true,
            (LineAfter::OpenTransaction, Some(line)) => {
                self.owes_discard = true;
                line.send([redis::cmd("DISCARD")]).is_ok()
            }
            (LineAfter::OpenTransaction | LineAfter::Unclear, _) => false,
        };
        if !is_ready {
            self.close();
        }
    }

    /// The connection has ended.
    fn broke(&mut self, error: RedisError) -> Option<LoneEnd> {
        self.close();
        let release = self.release.take()?;
        let outcome = match release.is_sent() {
            true => LoneOutcome::Done(Err(decode::broken(error))),
            false => LoneOutcome::Unusual(release.usual(false)),
        };
        Some((release.seq(), outcome))
    }

    /// Gives up a release whose time is over.
    fn give_up_late(&mut self) -> Option<LoneEnd> {
        let release = self.release.take_if(|release| release.due() <= Moment::now())?;
        self.close();
        // Another connection is made on the engine's runtime.
        let _entered = self.runtime.enter();
        let fault = late(&self.setting, release.begun(), &AtomicBool::new(release.is_sent()));
        Some((release.seq(), LoneOutcome::Done(Err(fault))))
    }

    /// A late reply would be taken for that to something else, and keys would stay watched, so the
    /// connection is not used any more.
    fn close(&mut self) {
        if let Some(line) = self.line.take() {
            // Whoever reads has a copy of the socket.
            line.shut_down();
            self.slot.forget();
        }
    }
}
