//! The nodes' card: each node stores the list of the quorum's servers. Clients that were given different
//! nodes don't exclude each other, and this is how they find out.

use std::sync::Arc;
use std::time::Duration;

use super::super::node::{Ask, Does};
use super::super::tokens;
use super::{MOST, QuorumWire};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Command, Verb};

/// How long a card lasts. Clients that are idle write it once a second, when the engine pings.
const LIFE: Duration = Duration::from_secs(3);

/// How often it is written, at most.
const INTERVAL: Duration = Duration::from_millis(400);

/// The same where another one stands.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What is left of a card may have been rounded.
const ROUNDED: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Cards {
    next: Moment,
    /// What was written last.
    servers: Option<Arc<str>>,
    /// How many nodes have not answered.
    under_way: usize,
    /// Where another card stands, how much was left of it, and when that was heard.
    other: Option<(usize, Duration, Moment)>,
    /// Whether the card was written again since.
    is_alive: bool,
}

impl QuorumWire {
    /// Writes the card on all nodes, if it is time and all have answered since. A node that can't be reached
    /// or is frozen may have been replaced by a server that other clients know.
    pub(super) fn write_cards(&mut self, now: Moment) {
        let is_due = self.cards.under_way == 0 && self.cards.next <= now;
        let is_watched = self.cards.other.is_some();
        let since = if is_watched { Moment::START } else { self.cards.next };
        if !is_due || !self.nodes.iter().all(|node| node.has_answered_since(since)) {
            return;
        }
        let Some(servers) = self.roster.servers() else { return };
        self.cards.next = now.after(if is_watched { WATCH_INTERVAL } else { INTERVAL });
        let names = &self.roster.card;
        let verb = Verb::Acquire(Acquire::of(Arc::clone(&servers), Some(LIFE)));
        let card = Command { names: names.clone(), kind: Kind::Mutex, verb, timeout: MOST };
        let old = self.cards.servers.replace(Arc::clone(&servers)).filter(|old| *old != servers);
        // Of a server that was restarted it is replaced at once, before strangers can write theirs.
        let old = old.map(|old| tokens::release(&old, names, Kind::Mutex));
        for node in &mut self.nodes {
            for command in old.iter().chain([&card]) {
                node.ask_aside(Does::Cards, command.clone(), now);
                self.cards.under_way += 1;
            }
        }
    }

    /// A node has the card, or another one.
    pub(super) fn carded(&mut self, at: usize, ask: &Ask, answer: &Result<Answer, Fault>) {
        let cards = &mut self.cards;
        cards.under_way = cards.under_way.saturating_sub(1);
        let is_known = cards.other.is_none_or(|(known, ..)| known == at);
        match answer {
            Ok(Answer::Held { .. }) if is_known => (cards.other, cards.is_alive) = (None, false),
            Ok(Answer::Busy(blocker)) if is_known => {
                let left = blocker.ttl.unwrap_or(Duration::MAX);
                cards.is_alive |= left <= LIFE
                    && cards.other.is_some_and(|(_, before, heard)| {
                        left.saturating_add(ask.sent.since(heard)) > before.saturating_add(ROUNDED)
                    });
                cards.other = Some((at, left, Moment::now()));
            }
            _ => {}
        }
    }

    /// Whether a node has another card. It may be that of servers that were restarted since, which no manager
    /// writes again.
    pub(in super::super) fn sees_another_card(&self) -> bool {
        self.cards.other.is_some()
    }

    /// Whether all nodes have this card, as far as they were asked.
    pub(in super::super) fn has_compared(&self) -> bool {
        self.cards.under_way == 0 && self.cards.other.is_none()
    }

    /// What is wrong where clients lock on other nodes.
    pub(super) fn strangers(&self) -> Option<Fault> {
        let (at, ..) = self.cards.other.filter(|_| self.cards.is_alive)?;
        let what = format!(
            "other clients at {} use a quorum of other servers; give all clients the same servers",
            self.names.get(at)?
        );
        Some(Fault::new(FaultClass::Unsupported, what))
    }
}
