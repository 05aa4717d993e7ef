//! Questions that fail while the lock is contended for.

use super::contend::{Contending, LastAnswer};
use super::question::Open;
use super::timing::retry_at;
use super::{Effects, Env, Machine, Stage, Waiter};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};

impl<W> Machine<W> {
    /// The answer took longer than the lease that it grants, which is as good as no answer.
    pub(super) fn spent(&mut self, open: &Open, env: &Env<'_>, out: &mut Effects<W>) {
        let Stage::Contending(contending) = &self.stage else { return };
        if !contending.attempt.is_adopted() {
            self.take_fresh_token(None, env, out);
        }
        let took = env.now.since(open.sent);
        let what =
            format!("the answer took {took:.1?}, longer than the lease; ask for a longer one");
        self.failed(open, Fault::new(FaultClass::Late, what), env, out);
    }

    pub(super) fn failed(
        &mut self,
        open: &Open,
        fault: Fault,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.failures = contending.failures.saturating_add(1);
        let (class, failures) = (fault.class, contending.failures);
        contending.last_answer = LastAnswer::Failed(fault);
        contending.answered_at = env.now;
        match class {
            // A connection that was closed while idle is noticed only by the first question.
            FaultClass::Unknown | FaultClass::Late if failures == 1 => self.ask_again(env, out),
            FaultClass::Unknown
            | FaultClass::Late
            | FaultClass::Refused
            | FaultClass::Moving
            | FaultClass::PartlyDone => {
                contending.look = retry_at(class, failures, env);
                self.refuse_late(open.sent, env, out);
                self.refuse_no_wait(open.sent, env, out);
                self.abandon_if_unwanted(env, out);
            }
            FaultClass::Permanent | FaultClass::Misuse | FaultClass::Unsupported => {
                for waiter in self.waiters.drain() {
                    let error = self.refusal(&waiter, env.now);
                    out.fail(waiter.handle, error);
                }
                self.abandon_if_unwanted(env, out);
            }
        }
    }

    /// The error of a caller that has waited for an unusable server as long as its `outage` allows.
    pub(super) fn outage(&self, waiter: &Waiter<W>, now: Moment) -> LockError {
        let waited = now.since(waiter.asked);
        let fault = match &self.stage {
            Stage::Contending(Contending { last_answer: LastAnswer::Failed(fault), .. }) => {
                let what = format!("{} (tried for {waited:.1?})", fault.what);
                Fault { what, ..fault.clone() }
            }
            _ => {
                let what = format!(
                    "the server can't be used: no connection within {waited:.1?} that answers"
                );
                Fault::new(FaultClass::Late, what)
            }
        };
        LockError::backend(Some(waiter.demand.key()), &fault)
    }
}
