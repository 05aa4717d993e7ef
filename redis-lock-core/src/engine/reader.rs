//! Reads answers on the callers' own runtime.
//!
//! An answer that the engine's thread reads costs a thread switch. So when the tasks of a runtime
//! send many commands, a task of that runtime reads instead. The task uses the engine's connection
//! and decides nothing: it takes the role of the reader from the engine. The engine takes the role
//! back when the task ends, and when answers are not read for 20 ms. Then the runtime's threads
//! are blocked, or a current-thread runtime is not driven.

use std::future::poll_fn;
use std::task::Poll;

use super::core::{Core, Work};
use super::path::{Path, Reader};
use super::places::{Place, PlaceId};
use super::runtime::{CurrentRuntime, RuntimeId};
use crate::domain::clock::Moment;
use crate::store::{Readiness, TaskWaker};
use crate::sync::{Arc, Weak, yield_now};

impl Core {
    /// Makes a task of the current runtime the reader.
    pub(super) fn open_reader(&self, place: PlaceId) {
        let (Some(core), Some(here)) = (self.shared(), CurrentRuntime::find()) else {
            return;
        };
        let Some(place) = self.places.get(place) else { return };
        if let Some(opening) = Opening::begin(&core, place, here.id()) {
            here.spawn(serve(opening));
        }
    }
}

/// A task that is going to read. Its runtime may stand still for long, so it keeps neither the
/// engine nor a socket, and there is one at most on each runtime.
struct Opening {
    core: Weak<Core>,
    place: Arc<Place>,
    runtime: RuntimeId,
}

impl Opening {
    /// `None` when another task of the runtime is going to read.
    fn begin(core: &Arc<Core>, place: Arc<Place>, runtime: RuntimeId) -> Option<Self> {
        let is_first = place.path.traffic().role.begin_opening(runtime);
        is_first.then(|| Self { core: Arc::downgrade(core), place, runtime })
    }

    /// Registers the socket with this runtime, and takes the role.
    fn open(&self) -> Option<(Box<dyn Readiness>, Role)> {
        let (epoch, watcher) = self.place.path.traffic().watcher()?;
        let readiness = self.runtime.watch(&watcher)?;
        let core = self.core.upgrade()?;
        let role = Role::take(core, Arc::clone(&self.place), epoch, self.runtime)?;
        Some((readiness, role))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.place.path.traffic().role.end_opening(self.runtime);
    }
}

/// The role of the reader, which is given back when the task ends, for whatever reason.
struct Role {
    core: Arc<Core>,
    place: Arc<Place>,
    epoch: u64,
    /// Tells this time of reading from later ones.
    number: u64,
    /// News for this task. A task that reads by now can't take it away.
    news: Arc<TaskWaker>,
}

impl Role {
    /// Takes the role from the engine; `None` when the connection has been replaced.
    fn take(core: Arc<Core>, place: Arc<Place>, epoch: u64, runtime: RuntimeId) -> Option<Self> {
        let number = {
            let mut traffic = place.path.traffic();
            if traffic.epoch() != Some(epoch) || traffic.role.reader() != Reader::Engine {
                return None;
            }
            traffic.role.pass_to(Reader::Task(runtime))
        };
        // The engine must stop watching the socket, or it would wake for each answer.
        core.waker.wake();
        let news = place.path.task_news.watch();
        Some(Self { core, place, epoch, number, news })
    }

    fn path(&self) -> &Path {
        &self.place.path
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let mut traffic = self.place.path.traffic();
        let is_reader = traffic.is_read_by(self.epoch, self.number);
        if is_reader && !planted!(RoleKept) {
            traffic.role.pass_to(Reader::Engine);
        }
        drop(traffic);
        if is_reader && !planted!(EngineNotWoken) {
            self.core.waker.wake();
        }
    }
}

/// The reading task, which ends with its connection.
async fn serve(opening: Opening) {
    let Some((readiness, role)) = opening.open() else { return };
    drop(opening);
    let mut work = Box::<Work>::default();
    while let Some(sending) = role.is_sending() {
        match role.woken(&*readiness, sending).await {
            Woken::Arrived => role.receive(&mut work).await,
            Woken::Asked => role.flush_others(&mut work).await,
            Woken::Unwatchable => return,
        }
    }
}

/// Why the task was woken.
enum Woken {
    /// Something may have arrived, or more can be sent.
    Arrived,
    /// Another thread has something to send.
    Asked,
    /// The runtime can't watch the socket, because it is shutting down.
    Unwatchable,
}

impl Role {
    /// Whether there is more to send; `None` when the connection has been replaced, or the engine
    /// has taken the role back.
    fn is_sending(&self) -> Option<bool> {
        let traffic = self.path().traffic();
        traffic.is_read_by(self.epoch, self.number).then(|| !traffic.is_sent())
    }

    async fn woken(&self, readiness: &dyn Readiness, sending: bool) -> Woken {
        poll_fn(|context| match readiness.poll_ready(context, sending) {
            Poll::Ready(Ok(())) => Poll::Ready(Woken::Arrived),
            Poll::Ready(Err(_)) => Poll::Ready(Woken::Unwatchable),
            Poll::Pending => self.news.poll_woken(context).map(|()| Woken::Asked),
        })
        .await
    }

    /// Reads what has arrived, and sends what follows from it.
    async fn receive(&self, work: &mut Work) {
        {
            let mut traffic = self.path().traffic();
            if !traffic.is_read_by(self.epoch, self.number) {
                return;
            }
            traffic.pump(Moment::now(), &mut work.settled);
        }
        let woken = work.settled.iter().filter(|settled| settled.is_awaited()).count();
        self.core.finish(work);
        if woken > 1 {
            self.let_others_run().await;
        }
        self.flush(work);
    }

    async fn flush_others(&self, work: &mut Work) {
        if !self.path().traffic().is_flushed() {
            self.let_others_run().await;
            self.flush(work);
        }
    }

    /// Lets tasks run that were woken just now: they are likely to send something, which then goes
    /// in one batch.
    async fn let_others_run(&self) {
        yield_now().await;
    }

    /// Sends what is queued. Another task may read by now, or the engine: each sends what the socket does
    /// not take.
    fn flush(&self, work: &mut Work) {
        let is_left = {
            let mut traffic = self.path().traffic();
            if traffic.is_flushed() {
                return;
            }
            traffic.push_out(&mut work.settled);
            !traffic.is_flushed() && !traffic.is_read_by(self.epoch, self.number)
        };
        if is_left {
            self.path().task_news.wake();
            self.core.waker.wake();
        }
        self.core.finish(work);
    }
}
