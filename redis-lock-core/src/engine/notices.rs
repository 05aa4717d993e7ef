//! What runs the user's code: wakers, subscribers, and the drops of what they hold.
//!
//! None of it runs under a lock of ours, and none of it on the engine's thread. Each is taken from
//! one list and carried out by itself, so one that panics, or blocks for ever, costs nobody else an
//! answer: another thread takes the rest.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::core::{Core, Work};
use super::path::ReadyReply;
use super::table::{Handle, LockId};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::error::Fault;
use crate::lock::hold::Hold;
use crate::lock::{Confirm, Later};
use crate::observe;
use crate::store::Answer;

/// How long a notice may lie there before another thread is started for it.
const STUCK: Duration = Duration::from_millis(50);

/// The most threads that wakers can hold up.
const MOST_THREADS: usize = 64;

/// Something that runs the user's code.
#[derive(Debug)]
pub(crate) enum Notice {
    Grant(LockId, Handle, Arc<Hold>),
    Fail(Handle, LockError),
    Tell(Confirm, Result<(), LockError>),
    Reply(super::path::Reply, Result<Answer, Fault>),
    Ready(ReadyReply, Result<(), Fault>),
    Lost(Arc<Hold>),
    Contended(Arc<Demand>, Option<String>),
    Renewed(Arc<Hold>),
    Missed(Arc<Demand>, Fault),
    Failed(String, Fault),
    Drop(Arc<Hold>),
    /// The server can't be reached; it is tried again after the pause.
    Unreachable(Fault, Duration),
    /// A task of the present runtime is to read from now on.
    OpenReader,
}

impl Notice {
    pub(super) fn of(id: &LockId, later: Later<Handle>) -> Self {
        match later {
            Later::Grant(handle, hold) => Self::Grant(id.clone(), handle, hold),
            Later::Fail(handle, error) => Self::Fail(handle, error),
            Later::Tell(confirm, outcome) => Self::Tell(confirm, outcome),
            Later::Lost(hold) => Self::Lost(hold),
            Later::Contended(demand, holder) => Self::Contended(demand, holder),
            Later::Renewed(hold) => Self::Renewed(hold),
            Later::Missed(demand, fault) => Self::Missed(demand, fault),
            Later::Fault(demand, fault) => Self::Failed(demand.key.to_string(), fault),
            Later::Drop(hold) => Self::Drop(hold),
        }
    }
}

impl Core {
    /// Runs the user's code. A panic of it ends here.
    pub(super) fn carry_out(&self, notice: Notice, work: &mut Work) {
        let run = AssertUnwindSafe(|| self.run(notice, work));
        // What it was about is done: the value is in its channel before its waker runs.
        let _ = catch_unwind(run);
    }

    fn run(&self, notice: Notice, work: &mut Work) {
        match notice {
            Notice::Grant(id, handle, hold) => {
                if let Err(Ok(hold)) = handle.send(Ok(hold)) {
                    // Nobody took it.
                    self.step(&id, work, |machine, env, out| {
                        machine.release(&hold, None, env, out)
                    });
                }
            }
            // Whoever asked may have left; the outcomes stand without them.
            Notice::Fail(handle, error) => drop(handle.send(Err(error))),
            Notice::Tell(confirm, outcome) => drop(confirm.send(outcome)),
            Notice::Reply(reply, answer) => drop(reply.send(answer)),
            Notice::Ready(reply, outcome) => drop(reply.send(outcome)),
            Notice::Lost(hold) => {
                hold.tell_loss();
                observe::lost(&hold);
            }
            Notice::Contended(demand, holder) => observe::contended(&demand, holder.as_deref()),
            Notice::Renewed(hold) => observe::renewed(hold.demand.key.as_str(), Ok(())),
            Notice::Missed(demand, fault) => {
                observe::failed(demand.key.as_str(), &fault);
                observe::renewed(demand.key.as_str(), Err(&fault));
            }
            Notice::Failed(key, fault) => observe::failed(&key, &fault),
            Notice::Drop(hold) => drop(hold),
            Notice::Unreachable(fault, pause) => {
                crate::observe::log::unreachable(&fault.what, pause)
            }
            Notice::OpenReader => self.open_reader(),
        }
    }
}

/// The list of notices that the engine, or a task that reads, has brought about.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    list: Mutex<List>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct List {
    notices: VecDeque<(Moment, Notice)>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Notices {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, notices: &mut VecDeque<Notice>) {
        if notices.is_empty() {
            return;
        }
        let now = Moment::now();
        self.list().notices.extend(notices.drain(..).map(|notice| (now, notice)));
    }

    /// The next to be carried out.
    pub(crate) fn take(&self) -> Option<Notice> {
        self.list().notices.pop_front().map(|(_, notice)| notice)
    }

    /// Has a thread of ours carry out what is there.
    pub(super) fn hand_to_thread(&self, core: &Arc<Core>) {
        let mut list = self.list();
        if list.notices.is_empty() {
            return;
        }
        if list.idle > 0 {
            drop(list);
            self.news.notify_one();
        } else if list.threads == 0 {
            Self::start_thread(&mut list, core);
        }
    }

    /// Looks whether notices lie there because who carries them out is held up. Returns when to
    /// look again.
    pub(super) fn watch(&self, core: &Arc<Core>, now: Moment) -> Moment {
        let mut list = self.list();
        let Some((oldest, _)) = list.notices.front() else { return Moment::NEVER };
        let stuck = oldest.after(STUCK);
        if now < stuck {
            return stuck;
        }
        if list.idle > 0 {
            self.news.notify_one();
        } else if list.threads < MOST_THREADS {
            Self::start_thread(&mut list, core);
        }
        now.after(STUCK)
    }

    fn start_thread(list: &mut List, core: &Arc<Core>) {
        let weak = Arc::downgrade(core);
        let builder = thread::Builder::new().name("redis-locks-tell".into());
        // Without a thread the next watch tries again.
        if builder.spawn(move || serve(&weak)).is_ok() {
            list.threads += 1;
        }
    }

    /// Lets the threads end when the list is empty.
    pub(super) fn end(&self) {
        self.list().is_over = true;
        self.news.notify_all();
    }

    /// Waits for a notice; none when the thread is to end.
    fn next(&self) -> Option<Notice> {
        let mut list = self.list();
        loop {
            if let Some((_, notice)) = list.notices.pop_front() {
                return Some(notice);
            }
            // One that was held up comes back to find another in its place.
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

/// Carries out notices until there are enough threads, or the engine has ended.
fn serve(core: &Weak<Core>) {
    let Some(core) = core.upgrade() else { return };
    while let Some(notice) = core.notices.next() {
        core.act(|work| core.carry_out(notice, work));
    }
}
