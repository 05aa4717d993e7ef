//! Carrying out notices, without any lock of ours.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use super::core::{Core, Work};
use super::notices::Notice;
use crate::observe;

impl Core {
    /// Runs the user's code. A panic of it ends here.
    pub(super) fn carry_out(&self, notice: Notice, work: &mut Work) {
        let run = AssertUnwindSafe(|| self.run(notice, work));
        // The notice itself is done: the value was put into its channel before its waker ran.
        let _ = catch_unwind(run);
    }

    fn run(&self, notice: Notice, work: &mut Work) {
        match notice {
            Notice::Grant(id, handle, hold) => {
                if let Err(Ok(hold)) = handle.send(Ok(hold)) {
                    // Nobody took it. An adopted token stays with whoever gave it away.
                    self.step(&id, work, |machine, env, out| match hold.demand.adopts {
                        Some(_) => drop(machine.detach(&hold, env, out)),
                        None => machine.release(&hold, None, env, out),
                    });
                }
            }
            // The callers may have gone; that changes no outcome.
            Notice::Fail(handle, error) => drop(handle.send(Err(error))),
            Notice::Confirm(confirm, outcome) => drop(confirm.send(outcome)),
            Notice::Reply(reply, answer) => drop(reply.send(answer)),
            Notice::Ready(reply, outcome) => drop(reply.send(outcome)),
            Notice::Lost(hold) => {
                hold.notify_loss();
                hold.report_end();
            }
            Notice::Contended(demand, holder) => observe::contended(&demand, holder.as_deref()),
            Notice::Renewed(hold) => observe::renewed(hold.demand.key.as_str(), Ok(())),
            Notice::Missed(demand, fault) => {
                observe::failed(demand.key.as_str(), &fault);
                observe::renewed(demand.key.as_str(), Err(&fault));
            }
            Notice::Failed(key, fault) => observe::failed(&key, &fault),
            Notice::Idle(event) => observe::idle(event),
            Notice::Drop(hold) => drop(hold),
            Notice::Unreachable(fault, pause) => observe::log::unreachable(&fault.what, pause),
            Notice::OpenReader(place) => self.open_reader(place),
        }
    }

    /// What a thread does that carries out notices: it goes on until there are enough of them, or
    /// the engine has ended.
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
