//! Holds that have ended by this side's clock, and whose keys stay for their margin.

use std::sync::Arc;

use super::{Effects, Env, Machine, Reap};
use crate::domain::clock::Moment;
use crate::lock::hold::Hold;

/// A hold that has ended although its guard or its body may still live. A body that was stopped beyond its
/// lease may act before it finds that out, so nothing is released until the guard is dropped, or until
/// the server has forgotten the token.
#[derive(Debug)]
pub(super) struct LapsedHold {
    hold: Arc<Hold>,
    reap: Box<Reap>,
    until: Moment,
}

impl<W> Machine<W> {
    /// Leaves the token of a hold that has ended on the server.
    pub(super) fn leave_lapsed(&mut self, hold: &Arc<Hold>, reap: Box<Reap>, env: &Env<'_>) {
        let until = env.now.after(reap.attempt().longest());
        self.lapsed.push(LapsedHold { hold: Arc::clone(hold), reap, until });
    }

    /// The guard of a hold is gone: nobody acts in the belief that it has the lock.
    pub(super) fn release_lapsed(&mut self, hold: &Arc<Hold>, out: &mut Effects<W>) {
        self.part_with_lapsed(|lapsed| Arc::ptr_eq(&lapsed.hold, hold), out);
    }

    /// The server has forgotten what a guard that is never dropped left there.
    pub(super) fn forget_lapsed(&mut self, now: Moment, out: &mut Effects<W>) {
        self.part_with_lapsed(|lapsed| lapsed.until <= now, out);
    }

    pub(super) fn part_with_lapsed(
        &mut self,
        is_over: impl Fn(&LapsedHold) -> bool,
        out: &mut Effects<W>,
    ) {
        for lapsed in self.lapsed.extract_if(.., |lapsed| is_over(lapsed)) {
            out.part(Some(lapsed.reap.waited_for(true)));
        }
    }

    /// Whether the guard of a hold that has ended may still live.
    pub(crate) fn has_lapsed(&self) -> bool {
        !self.lapsed.is_empty()
    }

    pub(super) fn lapsed_due(&self) -> Moment {
        self.lapsed.iter().map(|lapsed| lapsed.until).min().unwrap_or(Moment::NEVER)
    }

    /// The tokens of holds that have ended and are not released yet.
    #[cfg(test)]
    pub(crate) fn lapsed_tokens(&self) -> impl Iterator<Item = &Arc<str>> {
        self.lapsed.iter().map(|lapsed| lapsed.reap.attempt().wire())
    }
}
