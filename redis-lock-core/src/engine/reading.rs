//! Reading the answers of a place, for the engine and for a task that was asked to.
//!
//! Each reader does so in [`Traffic::read_as`], when a [`Registration`] says that something has arrived.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use super::core::{Core, Work};
use super::path::{Path, QueueEntry, Traffic};
use super::places::{Place, PlaceId};
use super::reader::{LATE, QUIET, Reader, ReadingTask};
use super::runtime::{CurrentRuntime, RuntimeId};
use crate::domain::clock::Moment;
use crate::store::{Readiness, Watcher};
use crate::sync::{Arc, Weak, yield_now};

impl Traffic {
    /// Reads what has arrived if that is up to `task`, or to the engine where there is none.
    pub(super) fn read_as(
        &mut self,
        task: Option<&Arc<ReadingTask>>,
        now: Moment,
        results: &mut Vec<QueueEntry>,
    ) {
        let is_late = self.age(now) >= LATE;
        match (self.role.reader(), task) {
            (Reader::Engine, None) => self.pump(now, results),
            (Reader::Callers, None) if is_late => self.pump(now, results),
            (Reader::Task(_), Some(task)) if self.role.is_passed_to(task) => {
                self.pump(now, results);
            }
            (Reader::Task(_), None)
                if (is_late && !planted!(RoleNotTakenBack)) || self.is_wire_due(now) =>
            {
                self.pump(now, results);
                if !results.is_empty() {
                    // The runtime of the task does not run, and may not for long.
                    self.role.depose();
                }
            }
            (Reader::Task(_), None) if now.since(self.role.last_command) > QUIET => {
                self.role.depose();
            }
            (Reader::Engine | Reader::Callers | Reader::Task(_), _) => {}
        }
    }

    /// When the engine looks whether an answer is late. A slow server is not asked about all the time:
    /// looks are as far apart as the first one is from the question.
    pub(super) fn late_check(&self, now: Moment) -> Moment {
        match self.role.reader() {
            Reader::Engine => Moment::NEVER,
            Reader::Callers if !self.has_written() => Moment::NEVER,
            Reader::Callers | Reader::Task(_) => {
                let passed = self.age(now).as_nanos() % LATE.as_nanos();
                let passed = u64::try_from(passed).unwrap_or_default();
                now.after(LATE - Duration::from_nanos(passed))
            }
        }
    }
}

impl Path {
    /// Wakes the tasks that were deposed. No lock may be held.
    pub(super) fn wake_deposed(&self) {
        let deposed = std::mem::take(&mut self.traffic().role.deposed);
        deposed.iter().for_each(|task| task.wake());
    }
}

/// A connection, registered with the runtime of its reader.
pub(super) struct Registration {
    epoch: u64,
    readiness: Box<dyn Readiness>,
}

impl Registration {
    /// Registers the present connection, on the current runtime.
    fn of(
        place: &Place,
        register: impl FnOnce(&Watcher) -> Option<Box<dyn Readiness>>,
    ) -> Option<Self> {
        let (epoch, watcher) = place.path.traffic().watcher()?;
        Some(Self { epoch, readiness: register(&watcher)? })
    }
}

/// How often a socket is read that can't be registered.
const BLIND_PAUSE: Duration = Duration::from_millis(5);

/// What the engine knows of the connection of a place.
#[derive(Default)]
pub(super) enum EngineWatch {
    /// Another one reads, or there is no connection.
    #[default]
    Away,
    Registered(Registration),
    /// It can't be registered, as in a process without free descriptors.
    Blind,
}

impl EngineWatch {
    /// Watches the present connection if the engine reads there, and nothing otherwise.
    pub(super) fn follow(&mut self, place: &Place) {
        let watched = {
            let traffic = place.path.traffic();
            traffic.epoch().filter(|_| matches!(traffic.role.reader(), Reader::Engine))
        };
        match (&*self, watched) {
            (Self::Registered(present), Some(epoch)) if present.epoch == epoch => {}
            (_, None) => *self = Self::Away,
            (_, Some(_)) => {
                // The old registration ends first.
                *self = Self::Blind;
                if let Some(registration) = Registration::of(place, |watcher| watcher().ok()) {
                    *self = Self::Registered(registration);
                }
            }
        }
    }

    /// When the place must be read although no event says that something has arrived.
    pub(super) fn due(&self, now: Moment) -> Moment {
        match self {
            Self::Blind => now.after(BLIND_PAUSE),
            Self::Away | Self::Registered(_) => Moment::NEVER,
        }
    }

    /// Ready when something may have arrived, or when more can be sent.
    pub(super) fn poll(&self, place: &Place, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self::Registered(registration) = self else { return Poll::Pending };
        let sending = !place.path.traffic().is_sent();
        registration.readiness.poll_ready(context, sending)
    }

    /// After an error it is registered again, or found to be closed.
    pub(super) fn forget(&mut self) {
        *self = Self::Away;
    }
}

impl Core {
    /// Asks a task of the current runtime to read.
    pub(super) fn ask_task_to_read(&self, place: PlaceId) {
        let (Some(core), Some(here)) = (self.shared(), CurrentRuntime::find()) else {
            return;
        };
        let Some(place) = self.places.get(place) else { return };
        if let Some(asked) = AskedTask::of(&core, place, here.id()) {
            here.spawn(serve(asked));
        }
    }
}

/// A task that was asked to read. Its runtime may stand still for long, so it keeps neither the
/// engine nor a socket, and there is one at most on each runtime.
struct AskedTask {
    core: Weak<Core>,
    place: Arc<Place>,
    runtime: RuntimeId,
}

impl AskedTask {
    /// `None` when another task of the runtime was asked.
    fn of(core: &Arc<Core>, place: Arc<Place>, runtime: RuntimeId) -> Option<Self> {
        let is_first = place.path.traffic().role.ask(runtime);
        is_first.then(|| Self { core: Arc::downgrade(core), place, runtime })
    }

    /// Registers the socket with this runtime, and begins to read, unless the connection was replaced.
    fn begin(&self) -> Option<TaskReads> {
        let registration = Registration::of(&self.place, |watcher| self.runtime.watch(watcher))?;
        let core = self.core.upgrade()?;
        let task = {
            let mut traffic = self.place.path.traffic();
            let is_present = traffic.epoch() == Some(registration.epoch);
            is_present.then(|| traffic.role.pass_to(self.runtime)).flatten()?
        };
        // The engine must stop watching the socket, or it would wake for each answer.
        core.waker.wake();
        Some(TaskReads { core, place: Arc::clone(&self.place), task, registration })
    }
}

impl Drop for AskedTask {
    fn drop(&mut self) {
        self.place.path.traffic().role.on_asked(self.runtime);
    }
}

/// The reading task, which ends with its connection, or when it is deposed.
async fn serve(asked: AskedTask) {
    let Some(reads) = asked.begin() else { return };
    drop(asked);
    let mut work = Box::<Work>::default();
    while let Some(sending) = reads.is_sending() {
        match reads.woken(sending).await {
            Woken::Arrived => reads.receive(&mut work).await,
            Woken::Asked => reads.flush_others(&mut work).await,
            Woken::Unwatchable => return,
        }
    }
}

/// Why the task was woken.
enum Woken {
    /// Something may have arrived, or more can be sent.
    Arrived,
    /// Another thread has something to send, or has deposed the task.
    Asked,
    /// The runtime can't watch the socket, because it is shutting down.
    Unwatchable,
}

/// What a task reads. The engine reads again when the task ends, for whatever reason.
struct TaskReads {
    core: Arc<Core>,
    place: Arc<Place>,
    task: Arc<ReadingTask>,
    registration: Registration,
}

impl Drop for TaskReads {
    fn drop(&mut self) {
        let mut traffic = self.place.path.traffic();
        let is_reader = traffic.role.is_passed_to(&self.task);
        if is_reader && !planted!(RoleKept) {
            traffic.role.reader = Reader::Engine;
        }
        drop(traffic);
        if is_reader && !planted!(EngineNotWoken) {
            self.core.waker.wake();
        }
    }
}

impl TaskReads {
    /// Whether there is more to send; `None` when the task was deposed.
    fn is_sending(&self) -> Option<bool> {
        let traffic = self.place.path.traffic();
        traffic.role.is_passed_to(&self.task).then(|| !traffic.is_sent())
    }

    async fn woken(&self, sending: bool) -> Woken {
        poll_fn(|context| match self.registration.readiness.poll_ready(context, sending) {
            Poll::Ready(Ok(())) => Poll::Ready(Woken::Arrived),
            Poll::Ready(Err(_)) => Poll::Ready(Woken::Unwatchable),
            Poll::Pending => self.task.news.poll_woken(context).map(|()| Woken::Asked),
        })
        .await
    }

    /// Reads what has arrived, and sends what follows from it.
    async fn receive(&self, work: &mut Work) {
        self.place.path.traffic().read_as(Some(&self.task), Moment::now(), &mut work.settled);
        let woken = work.settled.iter().filter(|entry| entry.is_told()).count();
        self.core.finish(work);
        if woken > 1 {
            // Tasks that were woken are likely to send something, which then goes in one batch.
            yield_now().await;
        }
        self.flush(work);
    }

    async fn flush_others(&self, work: &mut Work) {
        if !self.place.path.traffic().is_flushed() {
            yield_now().await;
            self.flush(work);
        }
    }

    /// Sends what is queued. If the task was deposed meanwhile, the reader of now sends what the socket does
    /// not take.
    fn flush(&self, work: &mut Work) {
        let reader = {
            let mut traffic = self.place.path.traffic();
            if traffic.is_flushed() {
                return;
            }
            traffic.push_out(&mut work.settled);
            (!traffic.is_flushed()).then(|| traffic.role.reader().clone())
        };
        match reader {
            Some(Reader::Task(task)) if Arc::ptr_eq(&task, &self.task) => {}
            Some(Reader::Task(task)) => task.wake(),
            Some(Reader::Engine | Reader::Callers) => self.core.waker.wake(),
            None => {}
        }
        self.core.finish(work);
    }
}
