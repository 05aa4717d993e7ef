//! Carries out the notices for the callers on one runtime, as a task of that runtime.
//!
//! The callers run right after it, and are likely to ask for something next. So it also sends what
//! they have put on the queue, in one batch. It keeps neither the engine nor a socket. When its
//! runtime is blocked, or nobody drives it, the engine takes the notices back after 50 ms, and sends
//! what lies on the queue after 20 ms.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;

use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::core::{Core, Work};
use super::notices::Notice;
use super::path::After;
use super::runtime_notices::{RuntimeNotices, STUCK};
use crate::domain::clock::Moment;

impl Core {
    /// Has a task of the current runtime carry out the notices for callers there, where each wake-up
    /// from outside would cost a system call.
    pub(super) fn open_notifier(&self) {
        let Ok(here) = Handle::try_current() else { return };
        if here.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return;
        }
        if let Some(notices) = self.notices.runtimes.open(here.id()) {
            let core = Weak::clone(&self.me);
            here.spawn(serve(RuntimeNotifier { core, runtime: here.id(), notices }));
        }
    }

    /// Passes notices on to the runtimes of those who asked. One alone is carried out here, which
    /// costs the same and takes less time.
    pub(super) fn pass_on(&self, work: &mut Work) {
        let now = Moment::now();
        for (runtime, notices) in &mut work.elsewhere {
            if notices.len() > 1 {
                self.notices.runtimes.add(*runtime, notices, now);
            }
            work.notices.append(notices);
        }
        work.elsewhere.clear();
        if !work.is_turn {
            self.waker.wake_by(now.after(STUCK));
        }
    }
}

/// The task that carries out the notices for callers on its runtime.
struct RuntimeNotifier {
    core: Weak<Core>,
    runtime: runtime::Id,
    notices: Arc<RuntimeNotices<Notice>>,
}

async fn serve(notifier: RuntimeNotifier) {
    let mut work = Box::<Work>::default();
    while notifier.notices.arrived().await && notifier.carry_out(&mut work) {
        let_callers_run().await;
        notifier.flush(&mut work);
    }
}

/// Lets the tasks run that were woken just now. They are in front of this one.
async fn let_callers_run() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl RuntimeNotifier {
    /// `None` when the engine is gone, or belongs to another process.
    fn core(&self) -> Option<Arc<Core>> {
        self.core.upgrade().filter(|core| !core.is_forked())
    }

    /// Carries out all notices. Returns whether there can be more.
    fn carry_out(&self, work: &mut Work) -> bool {
        let Some(core) = self.core() else { return false };
        if let Some(place) = core.places.only() {
            place.path.traffic().begin_batch(self.runtime);
        }
        while let Some(notice) = self.notices.take() {
            core.carry_out(notice, work);
            core.finish(work);
        }
        true
    }

    /// Sends what the callers have put on the queue meanwhile.
    fn flush(&self, work: &mut Work) {
        let Some(core) = self.core() else { return };
        let Some(place) = core.places.only() else { return };
        let after = {
            let mut traffic = place.path.traffic();
            traffic.end_batch(self.runtime);
            if traffic.is_flushed() {
                return;
            }
            place.path.push_out(traffic, &mut work.settled)
        };
        match after {
            After::WakeEngine => core.waker.wake(),
            After::WakeTask => place.path.task_news.wake(),
            _ => {}
        }
        core.finish(work);
    }
}

impl Drop for RuntimeNotifier {
    fn drop(&mut self) {
        let Some(core) = self.core() else { return };
        let rest = core.notices.runtimes.close(&self.notices);
        core.notices.runtimes.task_ends(self.runtime);
        core.notices.add_again(rest);
        // The engine may have ended meanwhile.
        core.notices.hand_to_thread(core.notifier());
        if let Some(place) = core.places.only() {
            place.path.traffic().end_batch(self.runtime);
        }
        // It sends what lies on the queue.
        core.waker.wake();
    }
}
