//! What this process knows of a lock and the server does not.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Machine, Stage};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::status::Waiting;
use crate::lock::hold::Hold;

/// What one machine adds to what the server says.
#[derive(Debug)]
pub(crate) struct LocalView {
    /// The present hold, and the number that its guard was given.
    pub(crate) held: Option<(Token, Option<u64>)>,
    /// The token by which the server knows of all who wait here, if it does.
    pub(crate) queued: Option<Token>,
    /// Who waits here, in the order of their coming.
    pub(crate) waiters: Vec<Waiting>,
    /// The token whose lease is kept although nobody is inside, and since when.
    pub(crate) kept: Option<(Token, Option<SystemTime>)>,
}

impl<W> Machine<W> {
    /// Who of us has it.
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        match &self.stage {
            Stage::Held(held) => Some(held.hold()),
            _ => None,
        }
    }

    /// What is known of it here, at `now` on both clocks.
    pub(crate) fn view(&self, now: Moment, wall: SystemTime) -> LocalView {
        let at = |moment: Moment| wall.checked_sub(now.since(moment));
        let mut view = LocalView { held: None, queued: None, waiters: Vec::new(), kept: None };
        match &self.stage {
            Stage::Held(held) => view.held = Some((held.hold().token.clone(), held.hold().fence)),
            Stage::Contending(contending) => view.queued = Some(contending.attempt.token().clone()),
            Stage::Kept(kept) => view.kept = Some((kept.token().clone(), at(kept.since()))),
            Stage::Idle => {}
        }
        view.waiters.extend(self.waiters.iter().map(|waiter| {
            let label = &waiter.demand.label;
            let label = (!label.is_empty()).then(|| label.to_string());
            Waiting { label, since: at(waiter.asked) }
        }));
        view
    }
}
