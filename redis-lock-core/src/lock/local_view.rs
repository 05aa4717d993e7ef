//! What this process knows of a lock beyond what the server knows: for people, and for the line of those that
//! wait for a lock that several can hold, or for the same several keys.
//!
//! Each of these has a machine. The first of them queue at the server. The others are held back, and know of
//! the server what the first of the line has learned.

use std::time::SystemTime;

use super::{Machine, Stage};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::domain::label::{SecondCall, bare, shown};
use crate::domain::status::Waiter;
use crate::store::Blocker;
use crate::{Token, Wait};

/// What one machine knows of its lock.
#[derive(Debug)]
pub(crate) struct LocalView {
    /// The token of the present hold, and its fencing number.
    pub(crate) held: Option<(Token, Option<u64>)>,
    /// The token in the server's queue that represents all waiters of this process, if there is
    /// one.
    pub(crate) queued: Option<Token>,
    /// The waiters of this process, in the order of arrival.
    pub(crate) waiters: Vec<Waiter>,
    /// The token of an idle lease, and since when it is idle.
    pub(crate) kept: Option<(Token, SystemTime)>,
}

impl LocalView {
    /// What a machine knows; `now` and `wall` are the present time on both clocks.
    pub(crate) fn of<W>(machine: &Machine<W>, now: Moment, wall: SystemTime) -> Self {
        let at = |moment: Moment| wall.checked_sub(now.since(moment));
        let mut view = Self { held: None, queued: None, waiters: Vec::new(), kept: None };
        match &machine.stage {
            Stage::Held(held) => view.held = Some((held.hold.token.clone(), held.hold.fence)),
            Stage::Contending(contending) if contending.is_held_back() => {}
            Stage::Contending(contending) => view.queued = Some(contending.attempt.token().clone()),
            Stage::Kept(kept) => {
                view.kept = at(kept.since).map(|since| (kept.token().clone(), since));
            }
            Stage::Idle | Stage::Sharing(_) => {}
        }
        view.waiters.extend(machine.waiters.iter().map(|waiter| {
            let terms = &waiter.demand.terms;
            let (label, second_call) =
                (&terms.label, SecondCall::of(terms.queue, terms.newest, terms.share));
            let label = (!bare(label).is_empty()).then(|| shown(label));
            Waiter { label, since: at(waiter.asked), second_call }
        }));
        view
    }
}

/// The position of a machine in the line.
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
    /// The number of waiters from which on another one is held back.
    Full {
        /// Whether the server has refused the first.
        is_refused: bool,
    },
}

impl Demand {
    /// Whether it waits in line with others of its process: those that have machines of their own for the
    /// same keys, and pass no other by.
    pub(super) fn waits_in_line(&self) -> bool {
        let has_machine = !self.kind.is_pooled() && self.adopts.is_none();
        // A place of its own at the server is what `queue` counts, and `newest` is found by. What a mark at
        // the key says to one call says nothing to the next.
        let (terms, is_known) = (&self.terms, !self.terms.is_alone() && self.terms.once.is_none());
        has_machine && is_known && terms.same.is_none() && terms.fair && terms.wait != Wait::None
    }
}

impl LineView {
    /// A call with `max_waiters` is held back only if it is known that it has to wait.
    pub(super) fn holds_back(self, demand: &Demand) -> bool {
        match self {
            Self::HasRoom => false,
            Self::Full { is_refused } => is_refused || demand.terms.max_waiters.is_none(),
        }
    }
}

/// What the last answer said.
#[derive(Clone, Debug)]
pub(super) enum LastAnswer {
    Nothing,
    Busy(Blocker),
    /// The same, but the release with this number was on its way, so it counts for none who came later.
    Behind(u64, Blocker),
    Failed(Fault),
}

/// What a contending machine has learned of the server.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(super) last_answer: LastAnswer,
    /// When the last answered question was sent, or the last failure came.
    pub(super) answered_at: Moment,
    /// When the last question was sent that the server has answered. The machine fills it in where it passes
    /// this on.
    pub(super) at: Moment,
    /// When the server last gave a useful answer.
    pub(super) useful: Moment,
    /// Consecutive failures. When this is passed on, an open question counts as the failure that it may
    /// become.
    pub(super) failures: u32,
}

impl Heard {
    pub(super) fn nothing(now: Moment) -> Self {
        let (answered_at, at) = (Moment::START, Moment::START);
        Self { last_answer: LastAnswer::Nothing, answered_at, at, useful: now, failures: 0 }
    }

    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.last_answer, LastAnswer::Busy(_))
    }
}
