//! Clients of one quorum that were given different `rejoin`. Each leaves its own on every node, and goes by the
//! longest that it finds: a node that has forgotten a lease must not vote before that lease has ended.

use std::sync::Arc;
use std::time::Duration;

use super::node::{Does, Node};
use super::tokens;
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Command, PLACE, Verb};

/// How much longer than its leases a client's `rejoin` stays.
const LIFE: Duration = Duration::from_secs(10);

/// How often it is written, and read: at least a few times in a `rejoin`.
const LEAST_INTERVAL: Duration = Duration::from_millis(400);
const MOST_INTERVAL: Duration = Duration::from_secs(5);

impl Node {
    /// Writes this client's `rejoin` on the node, if it is time.
    pub(super) fn note_rejoin(&mut self, now: Moment) {
        if !self.is_linked() || self.note.is_under_way || now < self.note.next {
            return;
        }
        let own = self.seat.own_rejoin();
        self.note.is_under_way = true;
        self.note.next = now.after((own / 4).clamp(LEAST_INTERVAL, MOST_INTERVAL));
        let terms = Acquire::of(text(own), Some(own.saturating_add(LIFE)));
        let (names, verb) = (self.seat.rejoin_names(), Verb::Acquire(terms));
        self.ask_aside(
            Does::Notes,
            Command { names, kind: Kind::Mutex, verb, timeout: PLACE },
            now,
        );
    }

    /// The node has this client's `rejoin`, or another one.
    pub(super) fn noted(&mut self, answer: &Result<Answer, Fault>, now: Moment) {
        self.note.is_under_way = false;
        self.note.agrees.get_or_insert(false);
        let found = match answer {
            Ok(Answer::Busy(blocker)) => blocker.value.as_deref().and_then(|it| it.parse().ok()),
            Ok(_) => None,
            Err(_) => {
                self.note.next = now.after(LEAST_INTERVAL);
                return;
            }
        };
        let found = found.map(Duration::from_millis).filter(|_| !planted!(RejoinUnread));
        if let Some(shorter) = found.filter(|found| *found < self.seat.own_rejoin()) {
            let release = tokens::release(&text(shorter), &self.seat.rejoin_names(), Kind::Mutex);
            self.ask_aside(Does::Neither, release, now);
            self.note.next = now;
            return self.note_rejoin(now);
        }
        found.into_iter().for_each(|longer| self.seat.found_rejoin(longer));
        self.note.agrees = Some(true);
    }
}

fn text(rejoin: Duration) -> Arc<str> {
    rejoin.as_millis().to_string().into()
}
