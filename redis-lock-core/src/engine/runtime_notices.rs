//! Notices for the callers on other runtimes, one list for each runtime.
//!
//! Whoever wakes a task of a current-thread runtime from another thread writes to that runtime's
//! event descriptor, each time. So notices for the tasks of one runtime are listed, and a task
//! there, the [`RuntimeNotifier`](super::runtime_notifier), is woken once for all of them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime;

use crate::domain::clock::Moment;
use crate::store::TaskWaker;

/// How long a notice may wait before another thread is started for it.
pub(super) const STUCK: Duration = Duration::from_millis(50);

/// The notices for the callers on one runtime.
#[derive(Debug)]
pub(super) struct RuntimeNotices<N> {
    list: Mutex<RuntimeList<N>>,
    news: TaskWaker,
}

#[derive(Debug)]
struct RuntimeList<N> {
    notices: VecDeque<(Moment, N)>,
    is_over: bool,
}

impl<N> Default for RuntimeNotices<N> {
    fn default() -> Self {
        let list = RuntimeList { notices: VecDeque::new(), is_over: false };
        Self { list: Mutex::new(list), news: TaskWaker::default() }
    }
}

impl<N> RuntimeNotices<N> {
    fn list(&self) -> MutexGuard<'_, RuntimeList<N>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds notices and wakes the task, unless nobody carries them out any more: then they are left.
    fn add(&self, notices: &mut VecDeque<N>, now: Moment) {
        let is_first = {
            let mut list = self.list();
            if list.is_over {
                return;
            }
            let is_first = list.notices.is_empty();
            list.notices.extend(notices.drain(..).map(|notice| (now, notice)));
            is_first
        };
        if is_first {
            self.news.wake();
        }
    }

    pub(super) fn take(&self) -> Option<N> {
        self.list().notices.pop_front().map(|(_, notice)| notice)
    }

    /// Waits for notices. Returns whether there may be more.
    pub(super) async fn arrived(&self) -> bool {
        poll_fn(|context| {
            let is_woken = self.news.poll_woken(context).is_ready();
            let list = self.list();
            if list.is_over || !list.notices.is_empty() {
                return Poll::Ready(!list.is_over);
            }
            drop(list);
            if is_woken {
                // It registers again.
                return self.news.poll_woken(context).map(|()| true);
            }
            Poll::Pending
        })
        .await
    }

    /// Lets the task end, and takes over what it has not carried out.
    fn close(&self) -> VecDeque<(Moment, N)> {
        let rest = {
            let mut list = self.list();
            list.is_over = true;
            std::mem::take(&mut list.notices)
        };
        self.news.wake();
        rest
    }

    fn waits_since(&self) -> Option<Moment> {
        self.list().notices.front().map(|(since, _)| *since)
    }
}

/// The lists of all runtimes that have one.
#[derive(Debug)]
pub(super) struct RuntimeLists<N> {
    has_any: AtomicBool,
    lists: Mutex<Lists<N>>,
}

#[derive(Debug)]
struct Lists<N> {
    all: Vec<(runtime::Id, Arc<RuntimeNotices<N>>)>,
    /// The runtimes that have a task for it, which ends some time after its list.
    tasks: Vec<runtime::Id>,
    is_over: bool,
}

impl<N> Default for RuntimeLists<N> {
    fn default() -> Self {
        let lists = Lists { all: Vec::new(), tasks: Vec::new(), is_over: false };
        Self { has_any: AtomicBool::new(false), lists: Mutex::new(lists) }
    }
}

impl<N> RuntimeLists<N> {
    fn lists(&self) -> MutexGuard<'_, Lists<N>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn has(&self, runtime: runtime::Id) -> bool {
        self.lists().all.iter().any(|(id, _)| *id == runtime)
    }

    /// Makes the list of a runtime, for a task there; `None` when that has one, or when none is needed
    /// any more. Nobody may drive the runtime, where one task after another would pile up.
    pub(super) fn open(&self, runtime: runtime::Id) -> Option<Arc<RuntimeNotices<N>>> {
        let mut lists = self.lists();
        if lists.is_over || lists.tasks.contains(&runtime) {
            return None;
        }
        lists.tasks.push(runtime);
        let list = Arc::<RuntimeNotices<N>>::default();
        lists.all.push((runtime, Arc::clone(&list)));
        self.has_any.store(true, Ordering::Relaxed);
        Some(list)
    }

    /// Adds notices for the callers on a runtime. Those that its task does not take are left.
    pub(super) fn add(&self, runtime: runtime::Id, notices: &mut VecDeque<N>, now: Moment) {
        let list = {
            let lists = self.lists();
            let list = lists.all.iter().find(|(id, _)| *id == runtime);
            list.map(|(_, list)| Arc::clone(list))
        };
        if let Some(list) = list {
            list.add(notices, now);
        }
    }

    /// The task of a runtime has ended, and its list was closed.
    pub(super) fn task_ends(&self, runtime: runtime::Id) {
        self.lists().tasks.retain(|other| *other != runtime);
    }

    /// Ends a list, and returns what is left on it.
    pub(super) fn close(&self, list: &Arc<RuntimeNotices<N>>) -> VecDeque<(Moment, N)> {
        {
            let mut lists = self.lists();
            lists.all.retain(|(_, other)| !Arc::ptr_eq(other, list));
            self.has_any.store(!lists.all.is_empty(), Ordering::Relaxed);
        }
        list.close()
    }

    /// Ends the lists on which a notice has waited for too long by `now`: their runtimes don't run.
    /// Adds what is left on them to `rest`. Returns since when the oldest notice of another waits.
    pub(super) fn close_stuck(
        &self,
        now: Moment,
        rest: &mut VecDeque<(Moment, N)>,
    ) -> Option<Moment> {
        if !self.has_any() {
            return None;
        }
        let all: Vec<_> = self.lists().all.iter().map(|(_, list)| Arc::clone(list)).collect();
        let mut oldest = None;
        for list in all {
            match list.waits_since() {
                Some(since) if since.after(STUCK) <= now => rest.extend(self.close(&list)),
                Some(since) => oldest = Some(oldest.map_or(since, |oldest| since.min(oldest))),
                None => {}
            }
        }
        oldest
    }

    /// Ends all lists for good, and returns what is left on them.
    pub(super) fn end(&self) -> impl Iterator<Item = N> {
        let all = {
            let mut lists = self.lists();
            lists.is_over = true;
            self.has_any.store(false, Ordering::Relaxed);
            std::mem::take(&mut lists.all)
        };
        all.into_iter().flat_map(|(_, list)| list.close()).map(|(_, notice)| notice)
    }
}
