//! Lets acquisitions and renewals count only when replicas have them.
//!
//! `WAIT` returns how many replicas have what its own connection wrote. So there is a second
//! connection, which writes something after all that was answered so far, and waits for that. One
//! `WAIT` serves all answers that arrived before it was sent, and a frozen replica delays nothing
//! but such answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;

use super::wait_link::{Awaited, VerdictInbox, WaitLink};
use crate::domain::clock::Moment;
use crate::store::{Answer, Command, Connected, Filled, Pulled, Readiness, Verb, Watcher, Wire};

/// A wire that holds answers back until enough replicas have what they confirm.
struct ReplicatedWire {
    inner: Box<dyn Wire>,
    /// Commands whose answers will be held back, and their time limits.
    counted: BTreeMap<u64, Duration>,
    /// Answers that are held back.
    kept: BTreeMap<u64, Answer>,
    asked: mpsc::UnboundedSender<Awaited>,
    inbox: Arc<VerdictInbox>,
}

/// Holds back the answers of this connection. To be called on the engine's runtime.
pub(super) fn wrap(connected: Connected, link: WaitLink) -> Connected {
    let Connected { wire: inner, watcher, .. } = connected;
    let (asked, awaited) = mpsc::unbounded_channel();
    let inbox = Arc::new(VerdictInbox::default());
    tokio::spawn(link.serve(awaited, Arc::clone(&inbox)));
    let watched = Arc::clone(&inbox);
    let watcher = watcher.map(|watcher| -> Watcher {
        Arc::new(move || {
            let (inner, inbox) = (watcher()?, Arc::clone(&watched));
            Ok(Box::new(ReplicaWatch { inner, inbox }) as _)
        })
    });
    let (counted, kept) = (BTreeMap::new(), BTreeMap::new());
    let wire = Box::new(ReplicatedWire { inner, counted, kept, asked, inbox });
    Connected { wire, watcher, pollable: None }
}

impl ReplicatedWire {
    fn count(&mut self, seq: u64, command: &Command) {
        if let Verb::Take { .. } | Verb::Acquire(_) | Verb::Renew { .. } = command.verb {
            self.counted.insert(seq, command.timeout);
        }
    }

    /// Passes on what need not be held back.
    fn keep_back(&mut self, pulled: Pulled) -> Option<Pulled> {
        let (Pulled::Done(seq, _) | Pulled::Redirected(seq, _, _)) = pulled else {
            return Some(pulled);
        };
        let counted = self.counted.remove(&seq);
        match (counted, pulled) {
            (
                Some(timeout),
                Pulled::Done(seq, Ok(answer @ (Answer::Held { .. } | Answer::Renewed { .. }))),
            ) => {
                self.kept.insert(seq, answer);
                // When the other end is gone, so is this connection, and the answer is not needed.
                let _ = self.asked.send(Awaited { seq, timeout });
                None
            }
            (_, pulled) => Some(pulled),
        }
    }

    fn decided(&mut self) -> Option<Pulled> {
        let (seq, verdict) = self.inbox.take()?;
        let answer = self.kept.remove(&seq)?;
        Some(Pulled::Done(seq, verdict.map(|()| answer)))
    }
}

impl Wire for ReplicatedWire {
    fn push(&mut self, seq: u64, command: Command) {
        self.count(seq, &command);
        self.inner.push(seq, command);
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        self.count(seq, &command);
        self.inner.push_asking(seq, command);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn is_flushed(&self) -> bool {
        self.inner.is_flushed()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let filled = self.inner.fill()?;
        Ok(Filled { received: filled.received || !self.inbox.is_empty(), ..filled })
    }

    fn owes_since(&self, oldest: Moment) -> Option<Moment> {
        if self.kept.is_empty() { self.inner.owes_since(oldest) } else { Some(oldest) }
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(decided) = self.decided() {
            return Some(decided);
        }
        while let Some(pulled) = self.inner.pull(wants) {
            if let Some(pulled) = self.keep_back(pulled) {
                return Some(pulled);
            }
        }
        None
    }
}

/// Ready when the connection or the inbox has something.
struct ReplicaWatch {
    inner: Box<dyn Readiness>,
    inbox: Arc<VerdictInbox>,
}

impl Readiness for ReplicaWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        match self.inner.poll_ready(context, sending) {
            Poll::Pending => self.inbox.poll_filled(context).map(Ok),
            ready => ready,
        }
    }
}
