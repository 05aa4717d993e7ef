//! Sharing: those who wait get the value of the body that ran.

use std::sync::Arc;

use super::{Env, Later, Machine, Stage};
use crate::domain::clock::Moment;
use crate::domain::value::StoredValue;
use crate::lock::hold::Hold;
use crate::{LockError, Token};

/// The stage in which a body of this process has succeeded, and its release has no answer yet.
#[derive(Debug)]
pub(super) struct SharingHold {
    hold: Arc<Hold>,
    value: StoredValue,
    /// Who came after that does not get the value.
    ended: Moment,
    /// When those who wait contend for the lock, whatever has become of the release.
    pub(super) until: Moment,
}

impl<W> Machine<W> {
    /// The lock is being given back. Those who wait get the value when the caller gets its own, so until
    /// then none of them contends.
    pub(super) fn begin_sharing(
        &mut self,
        hold: &Arc<Hold>,
        value: &StoredValue,
        env: &mut Env<'_, W>,
    ) {
        if self.waiters.is_empty() {
            return self.start(env);
        }
        let (hold, value) = (Arc::clone(hold), value.clone());
        let until = env.now.after(hold.demand.terms.timeout.saturating_mul(2));
        self.stage = Stage::Sharing(SharingHold { hold, value, ended: env.now, until });
    }

    /// The caller of this hold gets its own value now, or does not.
    pub(crate) fn on_share_end(&mut self, hold: &Arc<Hold>, is_good: bool, env: &mut Env<'_, W>) {
        if !matches!(&self.stage, Stage::Sharing(sharing) if Arc::ptr_eq(&sharing.hold, hold)) {
            return;
        }
        let Stage::Sharing(sharing) = self.take_stage(env) else { return };
        if is_good {
            self.share(&sharing.value, hold.demand.terms.same, sharing.ended, env);
        }
        self.start(env);
    }

    /// The call that this process waited for has a value for its callers. Calls that came after the process
    /// knew of the end do not get it.
    ///
    /// A waiter gets no value that this manager stored. Those who came before the body ended have
    /// it already, or run because the call failed. A later one gets here when its question overtakes the release.
    pub(super) fn on_shared(&mut self, value: &StoredValue, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.attempt.left_nothing();
        let told = contending.told.unwrap_or(env.now);
        if let Some((token, json)) = value.as_str().split_once(' ') {
            let token = Token::from_wire(token);
            if token.manager() != Some(env.manager) {
                self.share(&StoredValue::new(json), token.same(), told, env);
            }
        }
        self.start_over(None, env);
    }

    /// Gives a value to all who came by then, unless they have other input than the call that it is of.
    pub(super) fn share(
        &mut self,
        value: &StoredValue,
        same: Option<u128>,
        by: Moment,
        env: &mut Env<'_, W>,
    ) {
        for waiter in self.waiters.take_all(|it| it.asked <= by || planted!(SharedWithLate)) {
            if waiter.differs(same) {
                env.refuse(waiter, |key| LockError::Mismatch { key });
            } else {
                env.effects.later.push(Later::Share(waiter.handle, Box::new(value.clone())));
            }
        }
    }
}
