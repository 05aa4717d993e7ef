//! What this process knows of a lock beyond what the server knows.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Machine, Stage};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::label::shown;
use crate::domain::status::Waiting;
use crate::lock::hold::Hold;

/// What one machine knows of its lock.
#[derive(Debug)]
pub(crate) struct LocalView {
    /// The token of the present hold, and its fencing number.
    pub(crate) held: Option<(Token, Option<u64>)>,
    /// The token in the server's queue that stands for all waiters of this process, if there is
    /// one.
    pub(crate) queued: Option<Token>,
    /// The waiters of this process, in the order of arrival.
    pub(crate) waiters: Vec<Waiting>,
    /// The token of an idle lease, and since when it is idle.
    pub(crate) kept: Option<(Token, Option<SystemTime>)>,
}

impl<W> Machine<W> {
    /// The present hold of this process.
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        match &self.stage {
            Stage::Held(held) => Some(held.hold()),
            _ => None,
        }
    }

    /// Whether `is_it` says so of the demand of the present hold, or of one of those that wait for it.
    /// It is told whether that one has the lock.
    pub(crate) fn any_demand(
        &self,
        now: Moment,
        is_it: &mut dyn FnMut(&Demand, bool) -> bool,
    ) -> bool {
        let hold = self.hold().filter(|hold| hold.quiet_loss(now).is_none());
        hold.is_some_and(|hold| is_it(&hold.demand, true))
            || self.waiters.iter().any(|waiter| is_it(&waiter.demand, false))
    }

    /// The token of the lease that this process has, in use or idle, as the server knows it.
    pub(crate) fn leased(&self) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Held(held) => Some(held.hold().token.wire()),
            Stage::Kept(kept) => Some(kept.token().wire()),
            Stage::Idle | Stage::Contending(_) => None,
        }
    }

    /// What this process knows; `now` and `wall` are the present time on both clocks.
    pub(crate) fn view(&self, now: Moment, wall: SystemTime) -> LocalView {
        let at = |moment: Moment| wall.checked_sub(now.since(moment));
        let mut view = LocalView { held: None, queued: None, waiters: Vec::new(), kept: None };
        match &self.stage {
            Stage::Held(held) => view.held = Some((held.hold().token.clone(), held.hold().fence)),
            Stage::Contending(contending) if contending.is_held_back() => {}
            Stage::Contending(contending) => view.queued = Some(contending.attempt.token().clone()),
            Stage::Kept(kept) => view.kept = Some((kept.token().clone(), at(kept.since()))),
            Stage::Idle => {}
        }
        view.waiters.extend(self.waiters.iter().map(|waiter| {
            let label = &waiter.demand.terms.label;
            let label = (!label.is_empty()).then(|| shown(label));
            Waiting { label, since: at(waiter.asked) }
        }));
        view
    }
}
