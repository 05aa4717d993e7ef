//! Carries out notices while no lock of the engine is held.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use super::core::{Core, Work};
use super::lock_id::LockId;
use super::notices::{Notice, Observation};
use super::outages::OutageLine;
use crate::lock::hold::Hold;
use crate::observe::{self, Audience};

impl Core {
    /// Runs the user's code, and catches its panics.
    pub(super) fn carry_out(&self, notice: Notice, work: &mut Work) {
        let run = AssertUnwindSafe(|| self.run(notice, work));
        // The notice itself is done: the value was sent before the waker ran.
        let _ = catch_unwind(run);
    }

    fn run(&self, notice: Notice, work: &mut Work) {
        match notice {
            Notice::Grant(id, handle, hold) => {
                if let Err(Ok(hold)) = handle.send(Ok(hold)) {
                    self.take_back(&id, &hold, work);
                }
            }
            // The caller may be gone, which changes nothing.
            Notice::Fail(handle, error) => drop(handle.send(Err(error))),
            Notice::Confirm(confirm, outcome) => {
                drop(confirm.send(outcome.map_err(|error| *error)));
            }
            Notice::Reply(reply, answer) => drop(reply.send(*answer)),
            Notice::Ready(reply, outcome) => drop(reply.send(*outcome)),
            Notice::Lost(hold) => hold.report_end(Some(&self.notices.audience)),
            Notice::Wake(waker) => waker.wake(),
            Notice::OpenReader(place) => self.open_reader(place),
            Notice::Observe(observation) => tell(*observation, &self.notices.audience),
        }
    }

    /// The caller is gone. An adopted token still belongs to the process that gave it away.
    fn take_back(&self, id: &LockId, hold: &Arc<Hold>, work: &mut Work) {
        self.step(id, work, |machine, env, out| match hold.demand.adopts {
            Some(_) => drop(machine.detach(hold, env, out)),
            None => drop(machine.release(hold, false, || None, env, out)),
        });
    }

    /// Leaves it to notices to wake so many of those who wait for the same. `one` wakes one of them, and
    /// each has a notice of its own, so that a waker that blocks delays no other.
    pub(super) fn wake_each(&self, one: Arc<impl Wake + Send + Sync + 'static>, count: usize) {
        if count > 0 {
            let one = Waker::from(one);
            self.leave(&mut (0..count).map(|_| Notice::Wake(one.clone())).collect());
        }
    }

    /// Leaves notices to the threads that carry them out, which the engine starts and watches.
    pub(super) fn leave(&self, notices: &mut VecDeque<Notice>) {
        self.notices.add(notices);
        if self.has_ended.load(Ordering::SeqCst) {
            self.notices.hand_to_thread(self.notifier());
        } else {
            self.waker.wake();
        }
    }

    /// The loop of a thread that carries out notices. It ends when there are enough such threads,
    /// or when the engine has ended.
    pub(super) fn notifier(&self) -> impl FnOnce() + Send + 'static {
        let me = Weak::clone(&self.me);
        move || {
            let Some(core) = me.upgrade() else { return };
            while let Some(notice) = core.notices.next() {
                core.act(|work| core.carry_out(notice, work));
            }
        }
    }
}

/// Reports to subscribers and recorders.
fn tell(observation: Observation, audience: &Audience) {
    match observation {
        Observation::Contended(demand, holder) => {
            observe::contended(&demand, holder.as_deref(), audience);
        }
        Observation::LongWait(demand, error) => {
            audience.tell(|| observe::log::long_wait(&error, demand.holding.as_deref()));
        }
        Observation::Renewed(sort) => observe::renewed(sort),
        Observation::Missed { demand, fault, is_first } => {
            observe::failed(demand.key(), demand.sort(), &fault, audience);
            observe::missed(&demand, &fault, is_first, audience);
        }
        Observation::Failed(key, sort, fault) => observe::failed(&key, sort, &fault, audience),
        Observation::Idle(sort, event) => observe::idle(sort, event),
        Observation::Outage(line) => {
            let OutageLine { server, why, lasted, is_over } = &line;
            audience.tell(|| observe::log::outage(server.as_deref(), why, *lasted, *is_over));
        }
    }
}
