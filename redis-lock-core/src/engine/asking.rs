//! A caller's place among the waiters of a lock.

use std::sync::Arc;

use tokio::task::coop::consume_budget;

use super::Link;
use super::table::LockId;
use crate::domain::demand::Demand;
use crate::domain::idle_event::IdleEnd;
use crate::domain::kind::Kind;
use crate::domain::once::{OnceReceiver, once};
use crate::lock::Waiter;
use crate::lock::hold::Hold;
use crate::{LockError, observe};

/// A caller's place among the waiters. Dropping it gives up the place, and also the lock if it has
/// been granted meanwhile.
pub(crate) struct Asking {
    link: Option<Arc<Link>>,
    id: LockId,
    number: u64,
    answer: LockAnswer,
    /// The hold that this process had when the caller joined, for events; `None` when nobody
    /// listens.
    pub(crate) behind: Option<Arc<Hold>>,
}

enum LockAnswer {
    Known(Result<Arc<Hold>, LockError>),
    Awaited(OnceReceiver<Result<Arc<Hold>, LockError>>),
}

impl Asking {
    /// Joins the waiters of a lock.
    pub(crate) fn begin(link: Arc<Link>, demand: Arc<Demand>) -> Self {
        let core = link.core();
        let id = LockId::of(&demand, || core.number());
        let (mut behind, mut number) = (None, 0);
        let mut answer = LockAnswer::Known(Err(LockError::Shutdown));
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
                if core.is_shut() {
                    // The engine may have ended, so nothing may be asked, and then be released.
                    return;
                }
                let waiter = |demand| {
                    // Numbered under the machine's lock, so that the numbers follow the order of
                    // arrival.
                    number = core.number();
                    let (handle, awaited) = once();
                    answer = LockAnswer::Awaited(awaited);
                    Waiter { id: number, handle, demand, asked: env.now }
                };
                match machine.ask(demand, waiter, env, out) {
                    Some(hold) => answer = LockAnswer::Known(Ok(hold)),
                    None => behind = machine.hold().filter(|_| listening).cloned(),
                }
            });
        });
        link.start();
        Self { link: Some(link), id, number, answer, behind }
    }

    /// Waits for the lock.
    pub(crate) async fn granted(&mut self) -> Result<(LockId, Arc<Hold>), LockError> {
        if let LockAnswer::Known(Ok(_)) = &self.answer {
            // A task that takes an idle lease again and again lets others run now and then, as one
            // does that waits for a channel.
            consume_budget().await;
        }
        let answer = match &mut self.answer {
            LockAnswer::Known(known) => std::mem::replace(known, Err(LockError::Shutdown)),
            LockAnswer::Awaited(awaited) => awaited.await.unwrap_or(Err(LockError::Shutdown)),
        };
        // Without the link, dropping `self` does not cancel the request.
        self.link = None;
        Ok((self.id.clone(), answer?))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(link) = &self.link else { return };
        let core = link.core();
        if core.is_forked() {
            // What the parent's threads had locked stays locked here, so nothing of it is dropped.
            let answer = LockAnswer::Known(Err(LockError::Shutdown));
            std::mem::forget(std::mem::replace(&mut self.answer, answer));
            return;
        }
        let answer = match &mut self.answer {
            LockAnswer::Known(known) => Some(std::mem::replace(known, Err(LockError::Shutdown))),
            LockAnswer::Awaited(awaited) => awaited.end(),
        };
        match answer {
            // The token of an adopted hold still belongs to the process that gave it away.
            Some(Ok(hold)) if hold.demand.adopts.is_some() => drop(link.detach(&self.id, &hold)),
            Some(Ok(hold)) => drop(link.release(&self.id, &hold, || None)),
            Some(Err(_)) => {}
            None => core.act(|work| {
                core.step(&self.id, work, |machine, env, out| {
                    machine.cancel(self.number, env, out);
                });
            }),
        }
    }
}
