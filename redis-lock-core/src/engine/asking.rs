//! A caller's place among the waiters of a lock.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::coop::consume_budget;

use super::Link;
use super::core::{Core, Work};
use super::lock_id::LockId;
use super::table::{Granted, Handle, Shard};
use crate::domain::demand::Demand;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::status::IdleEnd;
use crate::domain::value::Finish;
use crate::lock::WaitingCall;
use crate::lock::hold::Hold;
use crate::{LockError, observe};

/// Has a link to the engine.
pub(crate) trait HasLink {
    fn link(&self) -> &Arc<Link>;
}

/// A caller's place among the waiters. Dropping it gives up the place, and the lock if it has been
/// granted.
///
/// It keeps the manager for its guard: counting one more reference, which all threads change, would
/// take longer.
pub(crate) struct Asking<L: HasLink> {
    asked: Option<(L, LockId)>,
    number: u64,
    answer: LockAnswer,
    /// Whether the caller had to queue in this process, for events, and behind which hold if there was
    /// one. `None` when there is no subscriber.
    pub(crate) behind: Option<Option<Arc<Hold>>>,
}

enum LockAnswer {
    /// It was taken, or the engine has ended.
    Over,
    Known(Granted),
    Awaited(oneshot::Receiver<Granted>),
}

impl<L: HasLink> Asking<L> {
    /// Joins the waiters of a lock.
    pub(crate) fn begin(manager: L, demand: Arc<Demand>) -> Self {
        let core = manager.link().core();
        let id = LockId::of(&demand, || core.number());
        let (mut behind, mut number) = (None, 0);
        let mut answer = LockAnswer::Over;
        let listening = observe::may_be_heard();
        let is_limited = demand.terms.max_waiters.is_some();
        if let Some(error) = core.crowded_elsewhere(&demand) {
            return Self::known(manager, id, Err(error.into()));
        }
        if let Some(hold) = core.take_idle(&demand) {
            return Self::known(manager, LockId::mutex(&id.main), Ok(hold));
        }
        core.act(|work| {
            give_up_lingering(core, &demand, &id, work);
            let beside = if is_limited { core.table.beside.refused(&id.main) } else { 0 };
            let waiting = |shard: &Shard| match is_limited {
                true => shard.crowd(&id.main).waiting() + beside,
                false => 0,
            };
            let asked = Arc::clone(&demand);
            core.step_in(&id, Some(&asked), waiting, work, |machine, env| {
                if core.is_draining() {
                    // The engine may have ended, so nothing may be asked, and then be released.
                    return;
                }
                let waiter = |demand, asked| {
                    // Numbered under the machine's lock, so that the numbers follow the order of
                    // arrival.
                    number = core.number();
                    let (sender, awaited) = oneshot::channel();
                    answer = LockAnswer::Awaited(awaited);
                    let handle = Handle { id: id.clone(), answer: sender };
                    WaitingCall { id: number, handle, demand, asked }
                };
                match machine.ask(demand, waiter, env) {
                    Some(hold) => answer = LockAnswer::Known(Ok(hold)),
                    None if listening && machine.is_behind(number) => {
                        behind = Some(machine.hold().cloned());
                    }
                    None => {}
                }
                env.effects.ends_older = asked.terms.newest && machine.waiting(number).is_some();
            });
            core.end_older(work);
        });
        manager.link().start();
        Self { asked: Some((manager, id)), number, answer, behind }
    }

    /// The manager that it was begun with, as long as it waits.
    pub(crate) fn manager(&self) -> Option<&L> {
        self.asked.as_ref().map(|(manager, _)| manager)
    }

    /// The manager, the machine and the number of its waiter, as long as it waits.
    pub(crate) fn place(&self) -> Option<(L, LockId, u64)>
    where
        L: Clone,
    {
        let (manager, id) = self.asked.as_ref()?;
        Some((manager.clone(), id.clone(), self.number))
    }

    fn known(manager: L, id: LockId, answer: Granted) -> Self {
        let answer = LockAnswer::Known(answer);
        Self { asked: Some((manager, id)), number: 0, answer, behind: None }
    }

    /// Waits for the lock.
    pub(crate) async fn granted(&mut self) -> Granted {
        let answer = match &mut self.answer {
            LockAnswer::Over => None,
            LockAnswer::Known(known) => {
                // A task that takes an idle lease again and again lets others run now and then, as one
                // does that waits for a channel.
                consume_budget().await;
                Some(known.clone())
            }
            LockAnswer::Awaited(awaited) => awaited.await.ok(),
        };
        // From here on, dropping `self` does not cancel the request.
        self.answer = LockAnswer::Over;
        answer.unwrap_or_else(|| Err(LockError::Shutdown.into()))
    }

    /// The manager, and the machine that was asked. To be called once, when the answer has come.
    pub(crate) fn asked(&mut self) -> Option<(L, LockId)> {
        self.asked.take()
    }
}

/// Gives up the leases that linger in this process and are in the way of a demand.
fn give_up_lingering(core: &Core, demand: &Demand, id: &LockId, work: &mut Work) {
    if let Kind::All { .. } = demand.kind {
        // A lease that lingers in this process must not block keys that this process asks for.
        for names in demand.names.all() {
            core.step(&LockId::mutex(names.main()), work, |machine, env| {
                machine.give_up_kept(IdleEnd::Terms, env);
            });
        }
    }
    if let Some(adopted) = &demand.adopts {
        // A token that was released has the lock no more, although its lease lingers.
        core.step(&LockId::mutex(&id.main), work, |machine, env| {
            if machine.keeps(&adopted.token) {
                machine.give_up_kept(IdleEnd::Terms, env);
            }
        });
    }
}

impl Core {
    /// Whether too many calls wait for one of the other keys of a lock of several.
    fn crowded_elsewhere(&self, demand: &Demand) -> Option<LockError> {
        let (Kind::All { .. }, Some(most)) = (demand.kind, demand.terms.max_waiters) else {
            return None;
        };
        let waiting = |names: &Names| -> usize {
            let beside = self.table.beside.refused(names.main());
            self.table.shard(names.main()).crowd(names.main()).waiting() + beside
        };
        let waiting = demand.names.all().skip(1).map(waiting).max().unwrap_or(0);
        let key = || demand.key().to_owned();
        (waiting >= most).then(|| LockError::Crowded { key: key(), waiting, in_line: false })
    }

    /// Ends the calls with `newest` that a later one has followed, where the server may not.
    pub(super) fn end_older(&self, work: &mut Work) {
        for id in std::mem::take(&mut work.older) {
            self.step(&id, work, |machine, env| machine.on_later_call(env));
        }
    }

    /// Takes the idle lease of this process for a call with a separate machine. A lease that does not fit is given
    /// back.
    fn take_idle(&self, demand: &Arc<Demand>) -> Option<Arc<Hold>> {
        if demand.kind != Kind::Mutex || !demand.terms.is_alone() {
            return None;
        }
        let mut taken = None;
        self.act(|work| {
            self.step(&LockId::mutex(demand.names.main()), work, |machine, env| {
                if !demand.terms.newest {
                    taken = machine.take_kept(demand, env);
                }
                machine.give_up_kept(IdleEnd::Terms, env);
            });
        });
        taken
    }
}

impl<L: HasLink> Drop for Asking<L> {
    fn drop(&mut self) {
        let Some((manager, id)) = &self.asked else { return };
        let link = manager.link();
        let core = link.core();
        if core.is_forked() {
            // What the parent's threads had locked stays locked here, so nothing of it is dropped.
            std::mem::forget(std::mem::replace(&mut self.answer, LockAnswer::Over));
            return;
        }
        let answer = match std::mem::replace(&mut self.answer, LockAnswer::Over) {
            LockAnswer::Over => return,
            LockAnswer::Known(known) => Some(known),
            LockAnswer::Awaited(mut awaited) => {
                // Drops the waker, which is the user's code. The other half is dropped while a shard is locked.
                awaited.close();
                awaited.try_recv().ok()
            }
        };
        match answer {
            // The token of an adopted hold still belongs to the process that gave it away.
            Some(Ok(hold)) if hold.demand.adopts.is_some() => drop(link.detach(id, &hold, false)),
            Some(Ok(hold)) => drop(link.release(id, &hold, &Finish::Release, || None)),
            Some(Err(_)) => {}
            None => core.act(|work| {
                core.step(id, work, |machine, env| {
                    machine.cancel(self.number, env);
                });
            }),
        }
    }
}
