//! Keeps, for a thread with a current-thread runtime, which locks its tasks hold and wait for.
//!
//! A call that blocks such a thread keeps all of its tasks from going on. When one of them has the
//! lock that the call waits for, or gets it first, the call would never end.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use tokio::runtime::{self, Handle, RuntimeFlavor};

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::names::Names;
use crate::lock::hold::Hold;
use crate::{Locks, Wait};

/// Ended entries are removed when there are more than this, and twice as many as after the last
/// time.
const FEW: usize = 32;

thread_local! {
    static ENTRIES: RefCell<Entries> = const { RefCell::new(Entries { all: Vec::new(), left: 0 }) };
    /// Whether this thread is known as a worker of a multi-threaded runtime.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

struct Entries {
    all: Vec<TaskEntry>,
    /// How many entries were left after the last removal.
    left: usize,
}

struct TaskEntry {
    runtime: runtime::Id,
    /// Which manager, by the address of its engine.
    manager: usize,
    demand: Weak<Demand>,
    hold: Option<Weak<Hold>>,
}

/// An acquisition that a task of this thread waits for; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct TaskPlace {
    demand: usize,
    is_held: bool,
}

/// The current-thread runtime that drives this thread, if any.
pub(crate) fn current_thread_runtime() -> Option<runtime::Id> {
    if IS_WORKER.try_with(Cell::get).unwrap_or(true) {
        return None;
    }
    let handle = Handle::try_current().ok()?;
    if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Some(handle.id());
    }
    // Spares the handle's shared counter the next time. Outside of a task the thread may be one
    // that runs several runtimes, one after the other.
    let _ = IS_WORKER.try_with(|is_worker| is_worker.set(tokio::task::try_id().is_some()));
    None
}

impl TaskPlace {
    /// Notes that a task of this thread waits; nothing where no current-thread runtime runs it.
    pub(crate) fn note(locks: &Locks, demand: &Arc<Demand>) -> Option<Self> {
        let runtime = current_thread_runtime()?;
        let entry = TaskEntry {
            runtime,
            manager: address(locks),
            demand: Arc::downgrade(demand),
            hold: None,
        };
        ENTRIES.try_with(|entries| entries.borrow_mut().push(entry)).ok()?;
        Some(Self { demand: Arc::as_ptr(demand).addr(), is_held: false })
    }

    /// The task has the lock. Its hold tells when it ends.
    pub(crate) fn held(mut self, hold: &Arc<Hold>) {
        let noted = ENTRIES.try_with(|entries| {
            let mut entries = entries.borrow_mut();
            let entry = entries.all.iter_mut().rev().find(|entry| entry.is_of(self.demand));
            entry.map(|entry| entry.hold = Some(Arc::downgrade(hold)))
        });
        self.is_held = matches!(noted, Ok(Some(())));
    }
}

impl Drop for TaskPlace {
    fn drop(&mut self) {
        if self.is_held {
            return;
        }
        // On another thread there is nothing to be found, and what was noted ends with the demand.
        let ended = ENTRIES.try_with(|entries| {
            let entries = &mut entries.borrow_mut().all;
            let index = entries.iter().rposition(|entry| entry.is_of(self.demand))?;
            Some(entries.swap_remove(index))
        });
        drop(ended);
    }
}

impl Entries {
    fn push(&mut self, entry: TaskEntry) {
        if self.all.len() > FEW.max(self.left * 2) {
            let now = Moment::now();
            self.all.retain(|entry| entry.stands(now));
            self.left = self.all.len();
        }
        self.all.push(entry);
    }
}

impl TaskEntry {
    fn is_of(&self, demand: usize) -> bool {
        self.demand.as_ptr().addr() == demand
    }

    fn stands(&self, now: Moment) -> bool {
        match &self.hold {
            Some(hold) => {
                hold.upgrade().is_some_and(|hold| !hold.is_released() && hold.loss(now).is_none())
            }
            None => self.demand.strong_count() > 0,
        }
    }

    /// Whether it holds the lock, or is about to.
    fn will_hold(&self, demand: &Demand) -> bool {
        self.hold.is_some() || demand.terms.wait == Wait::Forever
    }
}

/// The key that this thread would wait for without an end if `demand` blocked it now: tasks of the
/// runtime that it drives hold it, or wait for it and came first.
pub(crate) fn blocked_for_ever(locks: &Locks, demand: &Demand) -> Option<String> {
    let runtime = current_thread_runtime().filter(|_| demand.terms.wait == Wait::Forever)?;
    let now = Moment::now();
    let found = ENTRIES.try_with(|entries| {
        let entries = entries.borrow();
        let of_here = |entry: &&TaskEntry| {
            entry.runtime == runtime && entry.manager == address(locks) && entry.stands(now)
        };
        let others = entries.all.iter().filter(of_here).filter_map(|entry| {
            let other = entry.demand.upgrade()?;
            let key = shared_key(&other, demand)?;
            entry.will_hold(&other).then(|| (other.kind, key))
        });
        let mut beside = 0_u32;
        others.into_iter().find_map(|(kind, key)| {
            beside += 1;
            let is_full = demand.kind.limit().is_some_and(|limit| beside >= limit);
            (is_full || !kind.fits_beside(demand.kind)).then_some(key)
        })
    });
    found.ok().flatten()
}

/// A key that both want.
fn shared_key(one: &Demand, other: &Demand) -> Option<String> {
    let shared = one.names.all().find(|name| other.names.all().any(|it| it.main() == name.main()));
    shared.map(|names: &Names| names.user_key().to_owned())
}

fn address(locks: &Locks) -> usize {
    Arc::as_ptr(locks.link()).addr()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::thread;

    use super::*;

    #[test]
    fn a_wait_that_was_given_up_on_another_thread_is_no_obstacle() {
        let locks = Locks::in_memory();
        let elsewhere = locks.clone();
        let held = thread::spawn(move || elsewhere.mutex("k").blocking_acquire().unwrap());
        let held = held.join().unwrap();
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let _driven = runtime.enter();
        let mut waits = Box::pin(locks.mutex("k").acquire());
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        thread::spawn(move || drop(waits)).join().unwrap();
        held.blocking_release().unwrap();
        let own = locks.mutex("k").blocking_acquire();
        assert!(own.is_ok(), "nobody else waits for it: {own:?}");
    }
}
