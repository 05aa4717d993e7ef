//! What this process knows of a lock beyond what the server knows: for people, and for the line of those that
//! wait for a lock that several can hold.
//!
//! Each of these has a machine of its own. The first of them queue at the server; the others are held back, and
//! know of the server what the first of the line has heard.

use std::sync::Arc;
use std::time::SystemTime;

use super::contend::LastAnswer;
use super::{Machine, Stage};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::label::shown;
use crate::domain::status::Waiting;
use crate::lock::hold::Hold;
use crate::{Token, Wait};

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
    pub(crate) kept: Option<(Token, SystemTime)>,
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
            Stage::Kept(kept) => {
                view.kept = at(kept.since).map(|since| (kept.token().clone(), since));
            }
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

/// Where a machine stands in the line.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum LineStanding {
    /// It does not wait, or not with the others.
    #[default]
    Outside,
    /// It asks the server.
    Asks,
    HeldBack,
}

/// What a call finds of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineView {
    HasRoom,
    /// So many wait that one more is held back.
    Full {
        /// Whether the server has refused the first.
        is_refused: bool,
    },
}

impl Demand {
    /// Whether it waits in line with others of its process: those that wait for a lock that several can
    /// hold, and pass no other by.
    pub(super) fn waits_in_line(&self) -> bool {
        let has_line = self.kind.traits().mode.is_some() && self.adopts.is_none();
        has_line && self.terms.fair && self.terms.wait != Wait::None
    }
}

impl LineView {
    /// A call that wants no long queue is held back only where it is known that it has to wait.
    pub(super) fn holds_back(self, demand: &Demand) -> bool {
        match self {
            Self::HasRoom => false,
            Self::Full { is_refused } => is_refused || demand.terms.max_waiters.is_none(),
        }
    }
}

/// What a machine has heard of the server.
#[derive(Debug)]
pub(crate) struct Heard {
    last_answer: LastAnswer,
    answered_at: Moment,
    /// When the last question was sent that the server has answered.
    at: Moment,
    useful: Moment,
    /// Consecutive failures; an open question may become one.
    failures: u32,
}

impl Heard {
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.last_answer, LastAnswer::Busy(_))
    }
}

impl<W> Machine<W> {
    pub(crate) fn standing(&self) -> LineStanding {
        match &self.stage {
            Stage::Contending(contending) if contending.is_held_back() => LineStanding::HeldBack,
            Stage::Contending(contending) if contending.demand().waits_in_line() => {
                LineStanding::Asks
            }
            _ => LineStanding::Outside,
        }
    }

    /// What it has heard, for those behind it.
    pub(crate) fn heard(&self) -> Option<Heard> {
        let Stage::Contending(contending) = &self.stage else { return None };
        Some(Heard {
            last_answer: contending.last_answer.clone(),
            answered_at: contending.answered_at,
            at: self.heard,
            useful: contending.useful,
            failures: contending.failures.max(u32::from(self.open.is_some())),
        })
    }

    /// While it is held back, it has heard what the first of its line has.
    pub(crate) fn hear(&mut self, first: Heard, now: Moment) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        if contending.is_held_back() {
            self.heard = first.at;
            contending.last_answer = first.last_answer;
            (contending.answered_at, contending.failures) = (first.answered_at, first.failures);
            // An outage is counted from the question that began it.
            contending.useful = if first.failures == 0 { now } else { first.useful };
        }
    }

    /// One of the first has left, so it asks the server at its next tick.
    pub(crate) fn come_forward(&mut self, now: Moment) {
        if let Stage::Contending(contending) = &mut self.stage
            && !planted!(StaysBehind)
        {
            contending.look = contending.look.min(now);
        }
    }
}
