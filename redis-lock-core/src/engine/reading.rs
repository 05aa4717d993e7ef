//! Reading the answers of a place, for the engine and for a task that was asked to.
//!
//! Each reader does so in [`Traffic::read_as`], first when it becomes the reader, and then when
//! [`Traffic::poll_ready`] says that something has arrived.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::core::{Core, Work};
use super::path::{Path, QueueEntry, Traffic};
use super::places::{Place, PlaceId};
use super::reader::{QUIET, Reader, ReadingTask};
use super::runtime::{CurrentRuntime, RuntimeId};
use crate::domain::clock::Moment;
use crate::sync::{Arc, Weak, yield_now};

impl Traffic {
    /// Reads what has arrived if that is up to `task`, or to the engine where there is none.
    pub(super) fn read_as(
        &mut self,
        task: Option<&Arc<ReadingTask>>,
        now: Moment,
        results: &mut Vec<QueueEntry>,
    ) {
        let is_late = self.age(now) >= self.late_after();
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
                    self.unwatch();
                    self.role.depose();
                }
            }
            (Reader::Task(_), None) if now.since(self.role.last_command) > QUIET => {
                self.unwatch();
                self.role.depose();
                self.pump(now, results);
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
                let late = self.late_after();
                let passed = self.age(now).as_nanos() % late.as_nanos();
                let passed = u64::try_from(passed).unwrap_or_default();
                now.after(late - Duration::from_nanos(passed))
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

/// How often a connection is read that can't be registered, as in a process without free descriptors.
pub(super) const BLIND_PAUSE: Duration = Duration::from_millis(5);

/// Ready when the engine reads there, and something may have arrived or more can be sent.
pub(super) fn poll_place(place: &Place, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut traffic = place.path.traffic();
    match traffic.role.reader() {
        Reader::Engine => traffic.poll_ready(context),
        Reader::Callers | Reader::Task(_) => Poll::Pending,
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

    /// Begins to read, and registers the connection with this runtime, unless there is none.
    fn begin(&self) -> Option<TaskReads> {
        let core = self.core.upgrade()?;
        let (task, is_watched) = {
            let mut traffic = self.place.path.traffic();
            traffic.epoch()?;
            let task = traffic.role.pass_to(self.runtime)?;
            traffic.unwatch();
            // Under the same lock: a later poll could replace the waker of an engine that reads again.
            let mut context = Context::from_waker(Waker::noop());
            (task, self.runtime.try_watch(|| traffic.poll_ready(&mut context)))
        };
        let reads = TaskReads { core, place: Arc::clone(&self.place), task };
        // The engine must stop watching the socket, or it would wake for each answer.
        reads.core.waker.wake();
        is_watched.then_some(reads)
    }
}

impl Drop for AskedTask {
    fn drop(&mut self) {
        // What the parent's threads had locked stays locked in a forked child.
        if self.core.upgrade().is_none_or(|core| !core.is_forked()) {
            self.place.path.traffic().role.on_asked(self.runtime);
        }
    }
}

/// The reading task, which ends with its connection, or when it is deposed.
async fn serve(asked: AskedTask) {
    let Some(reads) = asked.begin() else { return };
    drop(asked);
    let mut work = Box::<Work>::default();
    let mut woken = Woken::Arrived;
    loop {
        match woken {
            Woken::Arrived => reads.receive(&mut work).await,
            Woken::Asked => reads.flush_others(&mut work).await,
            Woken::Ended => return,
        }
        woken = reads.woken().await;
    }
}

/// Why the task was woken.
enum Woken {
    /// Something may have arrived, or more can be sent.
    Arrived,
    /// Another thread has something to send.
    Asked,
    /// The task was deposed, or its runtime is shutting down and can't watch the socket.
    Ended,
}

/// What a task reads. The engine reads again when the task ends, for whatever reason.
struct TaskReads {
    core: Arc<Core>,
    place: Arc<Place>,
    task: Arc<ReadingTask>,
}

impl Drop for TaskReads {
    fn drop(&mut self) {
        if self.core.is_forked() {
            // As above.
            return;
        }
        let mut traffic = self.place.path.traffic();
        let is_reader = traffic.role.is_passed_to(&self.task);
        if is_reader && !planted!(RoleKept) {
            traffic.role.reader = Reader::Engine;
            traffic.unwatch();
        }
        drop(traffic);
        if is_reader && !planted!(EngineNotWoken) {
            self.core.waker.wake();
        }
    }
}

impl TaskReads {
    async fn woken(&self) -> Woken {
        poll_fn(|context| {
            let polled = {
                let mut traffic = self.place.path.traffic();
                if !traffic.role.is_passed_to(&self.task) {
                    return Poll::Ready(Woken::Ended);
                }
                traffic.poll_ready(context)
            };
            match polled {
                Poll::Ready(Ok(())) => Poll::Ready(Woken::Arrived),
                Poll::Ready(Err(_)) => Poll::Ready(Woken::Ended),
                Poll::Pending => self.task.news.poll_woken(context).map(|()| Woken::Asked),
            }
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

    /// Sends what is queued. If the task was deposed in between, the reader of now sends what the socket does
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
