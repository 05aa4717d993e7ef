//! One node of a quorum: the connection to it, and what is under way there.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::seat::Seat;
use super::tokens::Tokens;
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::too_few::Vote;
use crate::store::wire::contained;
use crate::store::{
    Acquire, Answer, Command, Connected, Connector, Filled, Inbox, PLACE, Pulled, Verb, Wire,
};

/// The first and the longest pause between two tries to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often a node's clock is looked at, when leases are renewed there.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Where connections to a node are left.
pub(super) type NodeSlot = Inbox<Result<Connected, Fault>>;

/// Something that a node was asked.
#[derive(Debug)]
pub(super) struct Ask {
    /// The ballot that its answer belongs to, if there is one.
    pub(super) ballot: Option<u64>,
    pub(super) token: Option<Arc<str>>,
    pub(super) does: Does,
    ttl: Duration,
    pub(super) sent: Moment,
}

/// Something that a node was asked, and its answer.
pub(super) type NodeAnswer = (Ask, Result<Answer, Fault>);

/// What a command does with its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Does {
    /// It may leave something on the node.
    Sets,
    Raises,
    Releases,
    /// It asks how much is left of the token's lease.
    Looks,
    /// It writes of which servers the quorum consists.
    Cards,
    /// It writes this client's `rejoin`.
    Notes,
    Neither,
}

impl Ask {
    pub(super) fn of(ballot: Option<u64>, command: &Command, now: Moment) -> Self {
        let does = match &command.verb {
            Verb::Take { .. } | Verb::Acquire(Acquire { .. }) | Verb::Renew { .. } => Does::Sets,
            Verb::Raise { .. } => Does::Raises,
            Verb::Release { .. } => Does::Releases,
            _ => Does::Neither,
        };
        let (token, ttl) = (command.verb.token().cloned(), command.verb.ttl().unwrap_or_default());
        Self { ballot, token, does, ttl, sent: now }
    }
}

/// What a connection has to do with the `rejoin` that its node has.
#[derive(Debug, Default)]
pub(super) struct RejoinNote {
    /// Whether the node has this client's value, or a longer one that this client adopts. `None` until it has
    /// answered, even by a refusal.
    pub(super) agrees: Option<bool>,
    pub(super) is_under_way: bool,
    pub(super) next: Moment,
}

pub(super) struct Node {
    pub(super) seat: Seat,
    wire: Option<Box<dyn Wire>>,
    pub(super) slot: Arc<NodeSlot>,
    /// Asks for another connection.
    wants: mpsc::UnboundedSender<()>,
    asked: BTreeMap<u64, Ask>,
    next_seq: u64,
    received: Moment,
    /// When the newest question was asked that has an answer, or when the connection was made.
    heard: Moment,
    /// Why there is no connection; `None` before the first try has ended.
    trouble: Option<Fault>,
    /// Why the connection closes after the answers that have arrived are read.
    ends: Option<Fault>,
    /// What was asked on connections that were closed, and has no answer.
    lost: VecDeque<NodeAnswer>,
    pub(super) tokens: Tokens,
    /// The longest lease that was asked for.
    longest: Duration,
    /// When its clock is looked at again.
    next_look: Moment,
    pub(super) note: RejoinNote,
}

impl Node {
    /// A node, and the connections that it needs: see [`keep_linked`].
    pub(super) fn new(seat: Seat) -> (Self, Weak<NodeSlot>, mpsc::UnboundedReceiver<()>) {
        let (wants, wanted) = mpsc::unbounded_channel();
        let slot = Arc::new(NodeSlot::default());
        let weak = Arc::downgrade(&slot);
        let node = Self {
            seat,
            wire: None,
            slot,
            wants,
            asked: BTreeMap::new(),
            next_seq: 0,
            received: Moment::START,
            heard: Moment::START,
            trouble: None,
            ends: None,
            lost: VecDeque::new(),
            tokens: Tokens::default(),
            longest: PLACE,
            next_look: Moment::START,
            note: RejoinNote::default(),
        };
        node.want_link();
        (node, weak, wanted)
    }

    pub(super) fn is_linked(&self) -> bool {
        self.wire.is_some()
    }

    /// Whether it has answered what it was asked since then.
    pub(super) fn has_answered_since(&self, time: Moment) -> bool {
        self.is_linked() && self.heard >= time
    }

    /// Whether it has not answered a release, which may take several rounds.
    pub(super) fn owes_releases(&self) -> bool {
        self.asked.values().any(|ask| ask.does == Does::Releases)
    }

    /// Why there is no connection, when the last try has failed.
    pub(super) fn trouble(&self) -> Option<&Fault> {
        self.trouble.as_ref().filter(|_| self.wire.is_none())
    }

    fn want_link(&self) {
        // When the task is gone, so is the engine.
        let _ = self.wants.send(());
    }

    /// Takes in a connection that was made. Returns whether one was.
    pub(super) fn take_link(&mut self, now: Moment) -> bool {
        let mut is_made = false;
        for made in self.slot.take() {
            match made {
                Err(fault) => self.trouble = Some(fault),
                Ok(wire) => {
                    is_made = true;
                    self.linked(wire, now);
                }
            }
        }
        is_made
    }

    fn linked(&mut self, wire: Connected, now: Moment) {
        if self.trouble.is_some() {
            self.seat.returned();
        }
        (self.wire, self.trouble) = (Some(wire), None);
        (self.received, self.heard) = (now, now);
        self.note = RejoinNote::default();
        self.note_rejoin(now);
        for command in self.tokens.given_up(now.after(self.longest), now) {
            self.push(command, None, now);
        }
    }

    /// Sends a command; a release refuses its token for as long as anything else of it may be executed
    /// here. Returns `false` when there is no connection.
    pub(super) fn push(&mut self, mut command: Command, ballot: Option<u64>, now: Moment) -> bool {
        if let Verb::Release { token, tombstone, .. } = &mut command.verb {
            self.tokens.give_up(token, true);
            *tombstone = (*tombstone).max(self.tokens.tombstone(token, now));
        }
        let ask = Ask::of(ballot, &command, now);
        self.longest = self.longest.max(ask.ttl);
        if self.wire.is_none() {
            match (&ask.token, &command.verb) {
                (Some(token), Verb::Renew { .. }) => {
                    // It may have the token of the process that gave the hold away.
                    let until = now.after(self.longest);
                    self.tokens.asked(token, (&command.names, command.kind), until, now);
                    self.tokens.settled(token, None);
                }
                // What it may have of the token is wanted again.
                (Some(token), _) if ask.does == Does::Sets => self.tokens.give_up(token, false),
                _ => {}
            }
            return false;
        }
        if let (Verb::Renew { token, .. }, true) = (&command.verb, self.next_look <= now) {
            self.next_look = now.after(LOOK_INTERVAL);
            let look = Command { kind: Kind::Mutex, verb: Verb::Look, ..command.clone() };
            let (token, does) = (Some(Arc::clone(token)), Does::Looks);
            let ask = Ask { token, does, ..Ask::of(None, &look, now) };
            self.send(ask, look, now);
        }
        self.send(ask, command, now);
        true
    }

    /// Asks something that belongs to no lock.
    pub(super) fn ask_aside(&mut self, does: Does, command: Command, now: Moment) {
        let ask = Ask { does, ..Ask::of(None, &command, now) };
        self.send(ask, command, now);
    }

    fn send(&mut self, ask: Ask, command: Command, now: Moment) {
        let Some(wire) = &mut self.wire else { return };
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.asked.is_empty() {
            // It counts as silent from here on.
            self.received = self.received.max(now);
        }
        if let (Some(token), Does::Sets) = (&ask.token, ask.does) {
            self.tokens.asked(token, (&command.names, command.kind), now.after(self.longest), now);
        }
        self.asked.insert(seq, ask);
        wire.push(seq, command);
    }

    /// Sends what can be sent now. Returns whether the connection has ended.
    pub(super) fn flush(&mut self) -> bool {
        let flushed = self.wire.as_mut().map_or(Ok(()), |wire| wire.flush());
        self.ends = self.ends.take().or_else(|| Some(Fault::broken(&flushed.err()?)));
        self.ends.is_some()
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.wire.as_ref().is_none_or(|wire| wire.is_flushed())
    }

    /// Takes in what has arrived. A connection that is silent for longer than the limit is dead.
    pub(super) fn fill(&mut self, limit: Duration, now: Moment) -> Filled {
        let none = Filled { received: false, more: false };
        let filled = self.wire.as_mut().map_or(Ok(none), |wire| wire.fill());
        if let Ok(Filled { received: true, .. }) = filled {
            self.received = now;
        }
        self.ends = match &filled {
            Err(error) => Some(Fault::broken(error)),
            Ok(_) if self.silent_at(limit) <= now => {
                Some(Fault::new(FaultClass::Unknown, format!("nothing came for {limit:?}")))
            }
            Ok(_) => None,
        };
        filled.unwrap_or(none)
    }

    /// Ready when there is another connection, or something may have arrived. A connection that can't be
    /// registered is read whenever another one is.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.slot.poll_news(context).is_ready() {
            return Poll::Ready(());
        }
        match self.wire.as_mut().map(|wire| wire.poll_ready(context)) {
            Some(Poll::Ready(Ok(()))) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    pub(super) fn unwatch(&mut self) {
        self.wire.iter_mut().for_each(|wire| wire.unwatch());
    }

    /// The next answer, or that there is none. No further rounds are sent of what belongs to a ballot that
    /// has failed.
    pub(super) fn pull(
        &mut self,
        has_failed: &dyn Fn(u64) -> bool,
        now: Moment,
    ) -> Option<NodeAnswer> {
        loop {
            if let Some(lost) = self.lost.pop_front() {
                return Some(lost);
            }
            let wire = self.wire.as_mut()?;
            let (asked, tokens) = (&self.asked, &self.tokens);
            let goes_on = |ask: &Ask| {
                let is_wanted = ask.token.as_ref().is_some_and(|token| tokens.is_wanted(token));
                match ask.does {
                    Does::Sets => is_wanted && !ask.ballot.is_some_and(has_failed),
                    // Sent once more, it would come after what the token was asked for again.
                    Does::Releases => !is_wanted,
                    Does::Raises | Does::Looks | Does::Cards | Does::Notes | Does::Neither => true,
                }
            };
            let mut may_go_on = |seq: u64| asked.get(&seq).is_some_and(goes_on);
            let pulled = contained(|| wire.pull(&mut may_go_on));
            let (seq, answer) = match pulled.unwrap_or_else(|fault| Some(Pulled::Broken(fault))) {
                None => {
                    let fault = self.ends.take()?;
                    self.close(&fault, now);
                    continue;
                }
                Some(Pulled::Broken(fault)) => {
                    self.close(&fault, now);
                    continue;
                }
                Some(Pulled::Done(seq, answer)) => (seq, answer),
                Some(Pulled::Redirected(seq, ..)) => {
                    let what = "this node is part of a cluster; a quorum has single servers";
                    (seq, Err(Fault::new(FaultClass::Unsupported, what)))
                }
            };
            if let Some(ask) = self.asked.remove(&seq) {
                self.heard = self.heard.max(ask.sent);
                match (&ask.token, ask.does) {
                    (Some(token), Does::Sets) => {
                        self.tokens.settled(token, None);
                        if let Ok(Answer::Held { .. } | Answer::Renewed { .. }) = answer {
                            self.tokens.leased(token, ask.sent, ask.ttl);
                        }
                    }
                    (Some(token), Does::Looks) => self.look(token, &answer),
                    (_, Does::Notes) => self.noted(&answer, now),
                    (Some(token), Does::Releases) if answer.is_ok() => self.tokens.released(token),
                    _ => {}
                }
                return Some((ask, answer));
            }
        }
    }

    /// Compares what is left of a lease with what a clock that runs as ours would have left.
    fn look(&self, token: &str, answer: &Result<Answer, Fault>) {
        let Ok(Answer::Seen(view)) = answer else { return };
        let holder = view.holders.iter().find(|holder| &**holder.token.wire() == token);
        // The answer came after the moment at which reading began.
        let now = Moment::now();
        if let Some(left) = holder.and_then(|holder| holder.ttl)
            && self.tokens.has_run_fast(token, left, now)
        {
            self.seat.runs_fast(self.longest, now);
        }
    }

    /// When its silence means that the connection is dead.
    pub(super) fn silent_at(&self, limit: Duration) -> Moment {
        let oldest = self.asked.values().next().filter(|_| self.wire.is_some());
        oldest.map_or(Moment::NEVER, |ask| self.received.max(ask.sent).after(limit))
    }

    /// Closes the connection. Commands without an answer may still be executed.
    fn close(&mut self, fault: &Fault, now: Moment) {
        (self.wire, self.ends) = (None, None);
        self.seat.lost(fault);
        self.trouble = Some(Fault { class: FaultClass::Refused, ..fault.clone() });
        self.want_link();
        let until = now.after(self.longest.saturating_add(PLACE));
        for ask in std::mem::take(&mut self.asked).into_values() {
            match (&ask.token, ask.does) {
                (Some(token), Does::Sets) => self.tokens.settled(token, Some(until)),
                (Some(token), Does::Releases) => self.tokens.release_lost(token, until),
                _ => {}
            }
            let unknown = Fault { class: FaultClass::Unknown, ..fault.clone() };
            self.lost.push_back((ask, Err(unknown)));
        }
    }

    /// Why its grant does not count now, if it does not.
    pub(super) fn bar(&self, now: Moment) -> Option<Vote> {
        // Until its clients' `rejoin` is known, so is not how old it has to be.
        self.seat.bar(now).or_else(|| (self.note.agrees != Some(true)).then_some(Vote::Young))
    }

    /// Why it can't be asked.
    pub(super) fn unreachable(&self) -> Fault {
        let none = || {
            let what = "there is no connection yet";
            Fault::new(FaultClass::Refused, what).of(BackendErrorKind::Unreachable)
        };
        self.trouble.clone().unwrap_or_else(none)
    }
}

/// Connects to a node whenever that is wanted, until that succeeds or the node is dropped.
pub(super) async fn keep_linked(
    connector: Arc<dyn Connector>,
    seat: Seat,
    mut wanted: mpsc::UnboundedReceiver<()>,
    slot: Weak<NodeSlot>,
) {
    let mut is_away = false;
    while wanted.recv().await.is_some() {
        let mut pause = FIRST_PAUSE;
        loop {
            let connecting = AssertUnwindSafe(connector.connect()).catch_unwind();
            let made = connecting.await.unwrap_or_else(|_| Err(Fault::driver_panicked()));
            let Some(slot) = slot.upgrade() else { return };
            let is_made = made.is_ok();
            if is_made == is_away {
                is_away = !is_made;
                let why = made.as_ref().err().map(|fault| &*fault.what);
                crate::observe::log::node(&seat.name(), why);
            }
            if let Err(fault) = &made {
                // Before the next try, which may succeed before this one is taken in.
                seat.lost(fault);
            }
            slot.put(made);
            drop(slot);
            if is_made || wanted.is_closed() {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
