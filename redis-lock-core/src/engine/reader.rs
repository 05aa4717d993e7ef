//! Reading on the callers' own runtime.
//!
//! Answers that the engine's thread reads cost a thread switch more than the bare driver's. Whoever
//! asks a lot from the tasks of a runtime with several threads has a task of that runtime read
//! instead. It has no connection and decides nothing: it takes the role of the reader from the
//! engine, which takes it back when the task ends, and looks after answers that nobody has read for
//! 20 ms, because the runtime's threads are blocked.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime;

use super::core::{Core, Work};
use super::path::{Path, Reader};
use super::places::{Place, PlaceId};
use crate::domain::clock::Moment;
use crate::store::{Readiness, Watcher};

impl Core {
    /// Has a task of the present runtime read from now on.
    pub(super) fn open_reader(&self, place: PlaceId) {
        let (Some(core), Ok(here)) = (self.shared(), runtime::Handle::try_current()) else {
            return;
        };
        if here.runtime_flavor() != runtime::RuntimeFlavor::MultiThread {
            // It was only thought to be one, and nobody may drive it for long.
            return;
        }
        let Some(place) = self.places.get(place) else { return };
        let Some((epoch, watcher)) = place.path.traffic().watcher() else { return };
        here.spawn(serve(core, place, epoch, watcher, here.id()));
    }
}

/// Gives the role back when the task ends, for whatever reason.
struct Role {
    core: Arc<Core>,
    place: Arc<Place>,
    epoch: u64,
    reader: Reader,
}

impl Role {
    /// Takes the role from the engine; none when the connection is another one by now.
    fn take(core: Arc<Core>, place: Arc<Place>, epoch: u64, runtime: runtime::Id) -> Option<Self> {
        let reader = Reader::Task(runtime);
        {
            let mut traffic = place.path.traffic();
            if traffic.epoch() != Some(epoch) || traffic.reader() != Reader::Engine {
                return None;
            }
            traffic.set_reader(reader);
        }
        // The engine's own registration would wake it for each answer.
        core.waker.wake();
        Some(Self { core, place, epoch, reader })
    }

    fn path(&self) -> &Path {
        &self.place.path
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let mut traffic = self.place.path.traffic();
        if traffic.epoch() == Some(self.epoch) && traffic.reader() == self.reader {
            traffic.set_reader(Reader::Engine);
        }
        drop(traffic);
        self.core.waker.wake();
    }
}

/// Watches the socket on this runtime. A runtime that was built without I/O says so by a panic; it
/// is not asked again.
fn watched(place: &Place, watcher: &Watcher, here: runtime::Id) -> Option<Box<dyn Readiness>> {
    match catch_unwind(AssertUnwindSafe(|| watcher())) {
        Ok(watching) => watching.ok(),
        Err(_) => {
            place.path.traffic().never_read_on(here);
            None
        }
    }
}

/// The task that reads, for as long as its connection lasts.
async fn serve(
    core: Arc<Core>,
    place: Arc<Place>,
    epoch: u64,
    watcher: Watcher,
    runtime: runtime::Id,
) {
    let Some(readiness) = watched(&place, &watcher, runtime) else { return };
    let Some(role) = Role::take(core, place, epoch, runtime) else { return };
    let mut work = Box::<Work>::default();
    while let Some(sending) = role.is_sending() {
        match role.woken(&*readiness, sending).await {
            Woken::Arrived => role.receive(&mut work).await,
            Woken::Asked => role.flush_others(&mut work).await,
            Woken::Unwatchable => return,
        }
    }
}

/// Why the task runs.
enum Woken {
    /// Something may have arrived, or more can be sent.
    Arrived,
    /// Somebody else has something to send.
    Asked,
    /// The runtime cannot watch the socket any more.
    Unwatchable,
}

impl Role {
    /// Whether there is more to be sent; none when the connection is not the one it watches.
    fn is_sending(&self) -> Option<bool> {
        let traffic = self.path().traffic();
        (traffic.epoch() == Some(self.epoch)).then(|| !traffic.is_sent())
    }

    async fn woken(&self, readiness: &dyn Readiness, sending: bool) -> Woken {
        poll_fn(|context| match readiness.poll_ready(context, sending) {
            Poll::Ready(Ok(())) => Poll::Ready(Woken::Arrived),
            Poll::Ready(Err(_)) => Poll::Ready(Woken::Unwatchable),
            Poll::Pending => self.path().task_news.poll_woken(context).map(|()| Woken::Asked),
        })
        .await
    }

    /// Reads what has arrived, and sends what comes of it.
    async fn receive(&self, work: &mut Work) {
        {
            let mut traffic = self.path().traffic();
            traffic.task_flushes = true;
            traffic.pump(Moment::now(), &mut work.settled);
        }
        let woken = work.settled.iter().filter(|settled| settled.is_awaited()).count();
        self.core.read(work);
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

    /// Tasks that were notified just now are likely to send something: they run first, so that one
    /// batch takes all of it.
    async fn let_others_run(&self) {
        tokio::task::yield_now().await;
    }

    fn flush(&self, work: &mut Work) {
        {
            let mut traffic = self.path().traffic();
            traffic.task_flushes = false;
            traffic.push_out(&mut work.settled);
        }
        self.core.read(work);
    }
}

impl Core {
    /// Hands over all outcomes that were read, and then notifies callers, one at a time.
    fn read(&self, work: &mut Work) {
        let mut are_listed = false;
        loop {
            self.send(work);
            let notice = match work.notices.len() {
                0 if !are_listed => return,
                // Nobody else's answer can be held up by it.
                1 if !are_listed => work.notices.pop_front(),
                _ => {
                    are_listed = true;
                    self.notices.add(&mut work.notices);
                    self.notices.take()
                }
            };
            let Some(notice) = notice else { return };
            self.carry_out(notice, work);
        }
    }
}
