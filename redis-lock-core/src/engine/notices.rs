//! Notices: what runs the user's code, such as wakers, subscribers, and the drops of what they
//! hold.
//!
//! No notice runs while a lock of the engine is held, and none runs on the engine's thread. Each is
//! taken from one list and carried out by itself. So one that panics, or blocks for ever, keeps no
//! answer from others: another thread takes the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::outages::OutageLine;
use super::path::LockId;
use super::path::{ReadyReply, Reply};
use super::table::Handle;
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::error::Fault;
use crate::domain::kind::LockSort;
use crate::domain::state::IdleEvent;
use crate::lock::hold::Hold;
use crate::lock::{Confirm, Confirmation, Later, Machine};
use crate::observe::Audience;
use crate::store::Answer;

/// How long a notice may wait before another thread is started for it.
const STUCK: Duration = Duration::from_millis(50);

/// The most threads that blocking wakers can occupy.
const MOST_THREADS: usize = 64;

/// Something that runs the user's code. It is moved from list to list, so what is large and rare is in
/// a box.
#[derive(Debug)]
pub(crate) enum Notice {
    Grant(LockId, Handle, Arc<Hold>),
    Fail(Handle, Box<LockError>),
    Confirm(Confirm, Result<(), Box<LockError>>),
    Reply(Reply, Box<Result<Answer, Fault>>),
    Ready(ReadyReply, Box<Result<(), Fault>>),
    Lost(Arc<Hold>),
    Observe(Box<Observation>),
    /// Wakes one of several who are woken by the same.
    Wake(Waker),
    /// What a bug has left of a machine, with its wakers.
    Broken(Box<Machine<Handle>>),
    /// A task of the current runtime takes the role of the reader.
    OpenReader(super::places::PlaceId),
}

/// A report, which only subscribers and recorders need.
#[derive(Debug)]
pub(crate) enum Observation {
    Contended(Arc<Demand>, Option<String>),
    LongWait(Arc<Demand>, Box<LockError>),
    Renewed(LockSort),
    Missed {
        demand: Arc<Demand>,
        fault: Fault,
        /// Whether it is the first one of this outage.
        is_first: bool,
    },
    /// A command for the lock at this key failed.
    Failed(String, LockSort, Fault),
    Idle(LockSort, IdleEvent),
    Outage(OutageLine),
}

impl Notice {
    pub(super) fn confirm((confirm, outcome): Confirmation) -> Self {
        Self::Confirm(confirm, outcome.map_err(Box::new))
    }

    pub(super) fn reply(reply: Reply, answer: Result<Answer, Fault>) -> Self {
        Self::Reply(reply, Box::new(answer))
    }

    pub(super) fn observe(observation: Observation) -> Self {
        Self::Observe(Box::new(observation))
    }

    pub(super) fn of(id: &LockId, later: Later<Handle>) -> Self {
        match later {
            Later::Grant(handle, hold) => Self::Grant(id.clone(), handle, hold),
            Later::Fail(handle, error) => Self::Fail(handle, error),
            Later::Confirm(confirm, outcome) => Self::Confirm(confirm, outcome),
            Later::Lost(hold) => Self::Lost(hold),
            Later::Contended(demand, holder) => {
                Self::observe(Observation::Contended(demand, holder))
            }
            Later::LongWait(demand, error) => Self::observe(Observation::LongWait(demand, error)),
            Later::Renewed(sort) => Self::observe(Observation::Renewed(sort)),
            Later::Missed(demand, fault) => {
                Self::observe(Observation::Missed { demand, fault, is_first: true })
            }
            Later::Fault(demand, fault) => {
                Self::observe(Observation::Failed(demand.key().to_string(), demand.sort(), fault))
            }
            Later::Idle(sort, event) => Self::observe(Observation::Idle(sort, event)),
            Later::Broken(machine) => Self::Broken(machine),
        }
    }
}

/// The notices that the engine or a reading task wants carried out.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    list: Mutex<List>,
    news: Condvar,
    /// Those who must not occupy all threads.
    pub(super) audience: Audience,
}

#[derive(Debug, Default)]
struct List {
    notices: VecDeque<(Moment, Notice)>,
    threads: usize,
    idle: usize,
    is_over: bool,
    /// Whether some were added since the engine last looked.
    is_added_to: bool,
    /// Whether the engine is going to look soon, so that it need not be woken for what is added.
    is_watched: bool,
}

impl Notices {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds notices. Returns whether the engine has to be woken to watch them.
    pub(super) fn add(&self, notices: &mut VecDeque<Notice>) -> bool {
        if notices.is_empty() {
            return false;
        }
        let now = Moment::now();
        let mut list = self.list();
        list.notices.extend(notices.drain(..).map(|notice| (now, notice)));
        list.is_added_to = true;
        !list.is_watched
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list().notices.is_empty()
    }

    /// The next notice.
    pub(crate) fn take(&self) -> Option<Notice> {
        self.list().notices.pop_front().map(|(_, notice)| notice)
    }

    /// Wakes a thread that carries notices out; a new one runs `serve`.
    pub(super) fn hand_to_thread(&self, serve: impl FnOnce() + Send + 'static) {
        let mut list = self.list();
        if list.notices.is_empty() {
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
        let was_added_to = std::mem::take(&mut list.is_added_to);
        list.is_watched = was_added_to || !list.notices.is_empty();
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

    fn start_thread(list: &mut List, serve: impl FnOnce() + Send + 'static) {
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
    pub(super) fn next(&self) -> Option<Notice> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_small() {
        assert!(size_of::<Notice>() <= 48, "{}", size_of::<Notice>());
        assert!(size_of::<Later<Handle>>() <= 64, "{}", size_of::<Later<Handle>>());
    }
}
