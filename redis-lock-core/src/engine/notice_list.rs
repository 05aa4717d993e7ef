//! A list of notices, and the threads that carry them out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, thread};

/// How long a notice may wait before another thread is started for it.
const STUCK: Duration = Duration::from_millis(50);

/// The most threads that blocking wakers can occupy.
const MOST_THREADS: usize = 64;

/// A list whose items are carried out one at a time, on threads that start when they are needed.
#[derive(Debug)]
pub(crate) struct NoticeList<N> {
    list: Mutex<List<N>>,
    news: Condvar,
}

#[derive(Debug)]
struct List<N> {
    notices: VecDeque<(Moment, N)>,
    threads: usize,
    idle: usize,
    is_over: bool,
    /// Whether there are some that the thread which added them does not carry out.
    is_left: bool,
    watch: Watch,
}

/// Whether the engine looks after the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// It has to be woken for what is added.
    Asleep,
    /// It is going to look soon.
    Awake,
    /// The same, and some were added since it last looked.
    AddedTo,
}

impl<N> Default for NoticeList<N> {
    fn default() -> Self {
        let list = List {
            notices: VecDeque::new(),
            threads: 0,
            idle: 0,
            is_over: false,
            is_left: false,
            watch: Watch::Asleep,
        };
        Self { list: Mutex::new(list), news: Condvar::new() }
    }
}

impl<N> NoticeList<N> {
    fn list(&self) -> MutexGuard<'_, List<N>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds notices for other threads.
    pub(super) fn add(&self, notices: &mut VecDeque<N>) {
        self.push(notices, true);
    }

    /// Adds notices that this thread will take, so that other threads can take them if it blocks. Returns
    /// whether the engine must wake to watch them.
    pub(super) fn add_own(&self, notices: &mut VecDeque<N>) -> bool {
        self.push(notices, false)
    }

    fn push(&self, notices: &mut VecDeque<N>, is_left: bool) -> bool {
        if notices.is_empty() {
            return false;
        }
        let now = Moment::now();
        let mut list = self.list();
        list.is_left |= is_left;
        list.notices.extend(notices.drain(..).map(|notice| (now, notice)));
        let before = std::mem::replace(&mut list.watch, Watch::AddedTo);
        before == Watch::Asleep
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list().notices.is_empty()
    }

    /// The next notice.
    pub(crate) fn take(&self) -> Option<N> {
        self.list().notices.pop_front().map(|(_, notice)| notice)
    }

    /// Wakes a thread that carries out what was left to it; a new one runs `serve`. A thread carries out
    /// the notices that it added itself, because a runtime with a paused clock would otherwise idle and
    /// jump ahead.
    pub(super) fn hand_to_thread(&self, serve: impl FnOnce() + Send + 'static) {
        let mut list = self.list();
        if !std::mem::take(&mut list.is_left) || list.notices.is_empty() {
            return;
        }
        if list.idle > 0 {
            drop(list);
            self.news.notify_one();
        } else if list.threads == 0 {
            Self::start_thread(&mut list, serve);
        }
    }

    /// Starts another thread when notices wait because those that carry them out are blocked.
    /// Returns when to look again.
    pub(super) fn watch(&self, now: Moment, serve: impl FnOnce() + Send + 'static) -> Moment {
        let mut list = self.list();
        // While some are added all the time, it looks now and then, and is not woken for each.
        let was_added_to = list.watch == Watch::AddedTo;
        let looks_again = was_added_to || !list.notices.is_empty();
        list.watch = if looks_again { Watch::Awake } else { Watch::Asleep };
        let Some((oldest, _)) = list.notices.front() else {
            return if was_added_to { now.after(STUCK) } else { Moment::NEVER };
        };
        let stuck = oldest.after(STUCK);
        if now < stuck {
            return stuck;
        }
        if list.idle > 0 {
            self.news.notify_one();
        } else if list.threads < MOST_THREADS {
            Self::start_thread(&mut list, serve);
        }
        now.after(STUCK)
    }

    pub(super) fn has_threads(&self) -> bool {
        self.list().threads > 0
    }

    /// Whether there are as many threads as there may be, and all of them are blocked.
    pub(super) fn are_stuck(&self) -> bool {
        let list = self.list();
        list.threads >= MOST_THREADS && list.idle == 0
    }

    fn start_thread(list: &mut List<N>, serve: impl FnOnce() + Send + 'static) {
        let builder = thread::Builder::new().name("redis-locks-tell".into());
        // If no thread can be started, the next call of `watch` tries again.
        if builder.spawn(serve).is_ok() {
            list.threads += 1;
        }
    }

    /// Lets the threads end when the list is empty.
    pub(super) fn end(&self) {
        self.list().is_over = true;
        self.news.notify_all();
    }

    /// Waits for a notice; returns `None` when the thread should end.
    pub(super) fn next(&self) -> Option<N> {
        let mut list = self.list();
        loop {
            if let Some((_, notice)) = list.notices.pop_front() {
                return Some(notice);
            }
            // Another thread may have replaced this one while it was blocked.
            if list.is_over || list.idle > 0 {
                list.threads -= 1;
                return None;
            }
            list.idle += 1;
            list = self.news.wait(list).unwrap_or_else(PoisonError::into_inner);
            list.idle -= 1;
        }
    }
}
