//! A caller's place among the waiters of a lock.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Link;
use super::table::LockId;
use crate::domain::demand::Demand;
use crate::domain::idle_event::IdleEnd;
use crate::domain::kind::Kind;
use crate::lock::hold::Hold;
use crate::lock::{Later, Waiter};
use crate::{LockError, observe};

/// A caller's place among the waiters. Dropping it gives up the place, and also the lock if it has
/// been granted meanwhile.
pub(crate) struct Asking {
    link: Option<Arc<Link>>,
    id: LockId,
    number: u64,
    answer: oneshot::Receiver<Result<Arc<Hold>, LockError>>,
    /// The hold that this process had when the caller joined, for events; `None` when nobody
    /// listens.
    pub(crate) behind: Option<Arc<Hold>>,
}

impl Asking {
    /// Joins the waiters of a lock.
    pub(crate) fn begin(link: Arc<Link>, demand: Arc<Demand>) -> Self {
        let core = link.core();
        let (handle, answer) = oneshot::channel();
        let id = LockId::of(&demand, core.number());
        let (mut behind, mut number) = (None, 0);
        let listening = observe::may_be_heard();
        core.act(|work| {
            if let Kind::All { .. } = demand.kind {
                // A lease that lingers in this process must not block keys that this process asks
                // for.
                for names in demand.names.all() {
                    core.step(&LockId::mutex(names.main()), work, |machine, env, out| {
                        machine.give_up_kept(IdleEnd::Terms, env, out);
                    });
                }
            }
            if let Some(adopted) = &demand.adopts {
                // A token that was released has the lock no more, although its lease lingers.
                core.step(&LockId::mutex(&id.main), work, |machine, env, out| {
                    if machine.keeps(&adopted.token) {
                        machine.give_up_kept(IdleEnd::Terms, env, out);
                    }
                });
            }
            core.begin(&id, work, |machine, env, out| {
                // Numbered under the machine's lock, so that the numbers follow the order of
                // arrival.
                number = core.number();
                if core.is_shut() {
                    // The engine may have ended, so nothing may be asked, and then be released.
                    return out.later.push(Later::Fail(handle, LockError::Shutdown));
                }
                machine.ask(Waiter { id: number, handle, demand, asked: env.now }, env, out);
                behind = machine.hold().filter(|_| listening).cloned();
            });
        });
        link.start();
        Self { link: Some(link), id, number, answer, behind }
    }

    /// Waits for the lock.
    pub(crate) async fn granted(mut self) -> Result<(LockId, Arc<Hold>), LockError> {
        let answer = (&mut self.answer).await;
        // Without the link, dropping `self` does not cancel the request.
        self.link = None;
        let hold = answer.unwrap_or(Err(LockError::Shutdown))?;
        Ok((self.id.clone(), hold))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(link) = &self.link else { return };
        let core = link.core();
        if core.is_forked() {
            return;
        }
        self.answer.close();
        match self.answer.try_recv() {
            // The token of an adopted hold still belongs to the process that gave it away.
            Ok(Ok(hold)) if hold.demand.adopts.is_some() => drop(link.detach(&self.id, &hold)),
            Ok(Ok(hold)) => drop(link.release(&self.id, &hold, || None)),
            Ok(Err(_)) => {}
            Err(_) => core.act(|work| {
                core.step(&self.id, work, |machine, env, out| {
                    machine.cancel(self.number, env, out);
                });
            }),
        }
    }
}
