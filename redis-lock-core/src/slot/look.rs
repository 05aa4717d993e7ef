//! What this process knows of a lock and the server does not.

use std::sync::Arc;

use super::{Slot, Stage};
use crate::Token;
use crate::clock::Moment;
use crate::hold::Hold;
use crate::status::Waiting;

/// What one slot adds to what the server says.
#[derive(Debug)]
pub(crate) struct Insight {
    /// The present hold, and the number that its guard was given.
    pub(crate) held: Option<(Token, Option<u64>)>,
    /// The token by which the server knows of all who wait here, if it does.
    pub(crate) queued: Option<Token>,
    /// Who waits here, in the order of their coming.
    pub(crate) waiters: Vec<Waiting>,
}

impl<W> Slot<W> {
    /// Who of us has it.
    pub(crate) fn had_by(&self) -> Option<&Arc<Hold>> {
        match &self.stage {
            Stage::Held(held) => Some(held.hold()),
            _ => None,
        }
    }

    pub(crate) fn insight(&self, now: Moment) -> Insight {
        let (held, queued) = match &self.stage {
            Stage::Held(held) => (Some((held.hold().token.clone(), held.hold().fence)), None),
            Stage::Contending(contender) => (None, Some(contender.token().clone())),
            Stage::Idle | Stage::Yielding(_) => (None, None),
        };
        let waiters = self.waiters.iter().map(|waiter| {
            let label = &waiter.demand.label;
            Waiting {
                label: (!label.is_empty()).then(|| label.to_string()),
                since: std::time::SystemTime::now().checked_sub(now.since(waiter.asked)),
            }
        });
        Insight { held, queued, waiters: waiters.collect() }
    }
}
