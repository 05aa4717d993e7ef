//! Lets acquisitions and renewals count only when replicas have them.
//!
//! A second connection writes something after all commands that need confirmation, and waits for
//! that write. So a frozen replica delays only those answers. One round of waiting serves all
//! answers that arrived before it began, and what is acquired at the same time: a free lock costs
//! one round trip, not two.

#[cfg(all(test, unix))]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use super::line::ServerLine;
use super::side_link::{LineSlot, SideLink};
use super::wait_round::{LONGEST, NextRound, Rider, WaitRound, WaitVerdict, unknown};
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::mark::Mark;
use crate::store::{Answer, Command, Connected, Filled, Pulled, Verb, Wire};

/// A wire that holds answers back until enough replicas have what they confirm.
struct ReplicatedWire {
    inner: Box<dyn Wire>,
    wanted: u32,
    link: Arc<SideLink>,
    engine: Handle,
    /// Commands without an answer, whose answers may be held back.
    counted: BTreeMap<u64, CountedCommand>,
    /// Answers that are held back.
    kept: BTreeMap<u64, KeptAnswer>,
    /// Commands that the next round may confirm before they are answered.
    riders: Vec<Rider>,
    /// Whether the user may read keys, without which nothing is confirmed before it is answered.
    may_read: bool,
    decided: VecDeque<Pulled>,
    /// The connection that waits.
    line: Option<ServerLine>,
    round: Option<WaitRound>,
    slot: Arc<LineSlot>,
    /// Whether a new one is being made.
    is_connecting: bool,
}

struct CountedCommand {
    /// The time limit of the command.
    limit: Duration,
    verdict: Option<WaitVerdict>,
}

struct KeptAnswer {
    answer: Answer,
    limit: Duration,
}

/// Holds back the answers of this connection until this number of replicas has what they say. To be called
/// on the engine's runtime.
pub(super) fn wrap(connected: Connected, wanted: u32, link: SideLink) -> Connected {
    let mut wire = ReplicatedWire::new(connected, wanted, link);
    wire.ask_for_line();
    Box::new(wire)
}

impl ReplicatedWire {
    fn new(inner: Box<dyn Wire>, wanted: u32, link: SideLink) -> Self {
        Self {
            inner,
            wanted,
            link: Arc::new(link),
            engine: Handle::current(),
            counted: BTreeMap::new(),
            kept: BTreeMap::new(),
            riders: Vec::new(),
            may_read: true,
            decided: VecDeque::new(),
            line: None,
            round: None,
            slot: Arc::default(),
            is_connecting: false,
        }
    }

    fn count(&mut self, seq: u64, command: &Command) {
        let is_counted = match &command.verb {
            Verb::Take { .. } | Verb::Acquire(_) | Verb::Renew { .. } => true,
            Verb::Release { keep: Some(keep), .. } => Mark::read_done(&keep.mark).is_some(),
            _ => false,
        };
        if is_counted {
            self.counted.insert(seq, CountedCommand { limit: command.timeout, verdict: None });
        }
    }

    /// Passes on what need not be held back.
    fn keep_back(&mut self, pulled: Pulled) -> Option<Pulled> {
        let (Pulled::Done(seq, _) | Pulled::Redirected(seq, _, _)) = pulled else {
            return Some(pulled);
        };
        let counted = self.counted.remove(&seq);
        match (counted, pulled) {
            (Some(CountedCommand { limit, verdict }), Pulled::Done(seq, Ok(answer)))
                if says_what_counts(&answer) =>
            {
                match verdict {
                    Some(verdict) => Some(Pulled::Done(seq, verdict.map(|()| answer))),
                    None => {
                        self.kept.insert(seq, KeptAnswer { answer, limit });
                        None
                    }
                }
            }
            (_, pulled) => Some(pulled),
        }
    }

    fn ask_for_line(&mut self) {
        if !std::mem::replace(&mut self.is_connecting, true) {
            self.engine.spawn(Arc::clone(&self.link).connect(Arc::clone(&self.slot)));
        }
    }

    /// Begins to wait, if there is something to wait for.
    fn begin_round(&mut self) {
        let mut riders = std::mem::take(&mut self.riders);
        riders.retain(|rider| self.counted.contains_key(&rider.seq));
        if self.round.is_some() || self.kept.is_empty() && riders.is_empty() {
            return;
        }
        if self.line.is_none() {
            return self.ask_for_line();
        }
        let limits = self.kept.values().map(|kept| kept.limit);
        let limits = limits.chain(riders.iter().filter_map(|rider| self.limit(rider.seq)));
        let limit = limits.min().unwrap_or(LONGEST);
        let answered = self.kept.keys().copied().collect();
        let keys = self.link.keys();
        self.round = Some(WaitRound::new(answered, riders, self.wanted, limit, keys));
        self.send_round();
    }

    fn limit(&self, seq: u64) -> Option<Duration> {
        self.counted.get(&seq).map(|counted| counted.limit)
    }

    /// Sends what the round asks next.
    fn send_round(&mut self) {
        let cmds = self.round.as_mut().and_then(|round| round.commands(Moment::now()));
        let sent = match (&mut self.line, cmds) {
            (Some(line), Some(cmds)) => {
                line.send_all(cmds).map_err(|error| unknown(&error.to_string()))
            }
            _ => Err(unknown("no key can be written")),
        };
        if let Err(fault) = sent {
            self.give_up_line(fault);
        }
    }

    /// Takes a new connection in, and what has arrived on it.
    fn fill_line(&mut self) -> Filled {
        let nothing = Filled { received: false, more: false };
        for made in self.slot.take() {
            self.is_connecting = false;
            match made {
                Ok(line) => self.line = Some(line),
                Err(fault) => {
                    let all = self.kept.keys().copied().collect();
                    self.decide(&Err(unknown(&fault.what)), all);
                }
            }
        }
        let Some(line) = &mut self.line else { return nothing };
        match line.fill() {
            Ok(filled) => {
                self.read_line();
                filled
            }
            Err(error) => {
                // Replies that arrived before the end still count.
                self.read_line();
                self.give_up_line(unknown(&error.to_string()));
                nothing
            }
        }
    }

    fn read_line(&mut self) {
        while let Some(line) = &mut self.line {
            match (line.next_reply(), &mut self.round) {
                (Ok(Some(reply)), Some(round)) => match round.take(reply) {
                    NextRound::Wait => {}
                    NextRound::Again => self.send_round(),
                    NextRound::Over(verdict, covered) => {
                        self.may_read &= !round.may_not_read();
                        self.round = None;
                        self.decide(&verdict, covered);
                    }
                },
                (Ok(None), Some(round)) if round.due() <= Moment::now() => {
                    let late = round.late();
                    return self.give_up_line(late);
                }
                (Ok(None), _) => return,
                (Ok(Some(_)), None) => return self.give_up_line(unknown("nobody asked for this")),
                (Err(fault), _) => return self.give_up_line(unknown(&fault.what)),
            }
        }
    }

    /// A late reply would be taken for the answer to another command, so the connection is closed.
    fn give_up_line(&mut self, fault: Fault) {
        self.line = None;
        if let Some(round) = self.round.take() {
            let (verdict, covered) = round.fail(fault);
            self.decide(&verdict, covered);
        }
    }

    /// Answers that are held back are given; others are given as soon as they come.
    fn decide(&mut self, verdict: &WaitVerdict, covered: Vec<u64>) {
        for seq in covered {
            if let Some(KeptAnswer { answer, .. }) = self.kept.remove(&seq) {
                self.decided.push_back(Pulled::Done(seq, verdict.clone().map(|()| answer)));
            } else if let Some(counted) = self.counted.get_mut(&seq) {
                counted.verdict = Some(verdict.clone());
            }
        }
    }
}

impl Wire for ReplicatedWire {
    fn push(&mut self, seq: u64, command: Command) {
        self.count(seq, &command);
        if let (Verb::Take { token, .. }, true) = (&command.verb, self.may_read) {
            let (names, token) = (command.names.clone(), Arc::clone(token));
            self.riders.push(Rider { seq, names, token });
        }
        self.inner.push(seq, command);
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        self.count(seq, &command);
        self.inner.push_asking(seq, command);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        if self.inner.is_flushed() {
            self.begin_round();
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.inner.is_flushed()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let filled = self.inner.fill()?;
        // This shows that the connection of the commands works only if it has answered one of them:
        // a round for unanswered commands alone goes on although that connection is dead.
        let confirms_answers = self.round.as_ref().is_some_and(WaitRound::confirms_answers);
        let line = self.fill_line();
        let received = filled.received || line.received && confirms_answers;
        Ok(Filled { received, more: filled.more || line.more })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let ready @ Poll::Ready(_) = self.inner.poll_ready(context) {
            return ready;
        }
        if let ready @ Poll::Ready(_) = self.slot.poll_news(context) {
            return ready;
        }
        // A line that can't be registered is read whenever the connection is.
        match self.line.as_mut().map(|line| line.poll_ready(context, false)) {
            Some(Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    fn unwatch(&mut self) {
        self.inner.unwatch();
        self.line.iter_mut().for_each(ServerLine::unwatch);
    }

    fn owes_since(&self, oldest: Moment) -> Option<Moment> {
        if self.kept.is_empty() { self.inner.owes_since(oldest) } else { Some(oldest) }
    }

    fn due(&self) -> Moment {
        self.round.as_ref().map_or(Moment::NEVER, WaitRound::due).min(self.inner.due())
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        if let Some(decided) = self.decided.pop_front() {
            return Some(decided);
        }
        while let Some(pulled) = self.inner.pull(wants) {
            if let Some(pulled) = self.keep_back(pulled) {
                return Some(pulled);
            }
        }
        self.begin_round();
        None
    }
}

/// Whether the answer to a counted command relies on what the server has: a lease, or the mark of what was
/// done, which a command that is repeated finds there.
fn says_what_counts(answer: &Answer) -> bool {
    match answer {
        Answer::Held { .. } | Answer::Renewed { .. } | Answer::Done => true,
        Answer::Gone { by: Some(by), .. } => Mark::read_done(by).is_some(),
        _ => false,
    }
}
