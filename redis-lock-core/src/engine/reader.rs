//! Reading on the callers' own runtime.
//!
//! Answers that the engine's thread reads cost a thread switch more than the bare driver's. Whoever
//! asks a lot from the tasks of a runtime with several threads has a task of that runtime read
//! instead. It has no connection and decides nothing: it takes the role of the reader from the
//! engine, which takes it back when the task ends, and looks after answers that nobody has read for
//! 20 ms, because the runtime's threads are blocked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
        core.bell.ring();
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
        self.core.bell.ring();
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
    while role.path().traffic().epoch() == Some(epoch) {
        if !round(&role, &*readiness, &mut work).await {
            return;
        }
    }
}

/// Waits until there is something to read or to send, and does it. Ends with `false` when the
/// runtime can't tell any more.
async fn round(role: &Role, readiness: &dyn Readiness, work: &mut Work) -> bool {
    let sending = !role.path().traffic().is_sent();
    let arrived = tokio::select! {
        biased;
        ready = readiness.ready(sending) => match ready {
            Ok(()) => true,
            Err(_) => return false,
        },
        () = role.path().task_news.notified() => false,
    };
    let mut woken = 0;
    if arrived {
        {
            let mut traffic = role.path().traffic();
            traffic.task_flushes = true;
            traffic.pump(Moment::now(), &mut work.settled);
        }
        woken = work.settled.iter().filter(|settled| settled.is_awaited()).count();
        role.core.read(work);
    } else if role.path().traffic().is_flushed() {
        return true;
    }
    // Those who were notified, or who come along with whoever notified us, have something to send:
    // they run first, and one batch takes it all.
    if woken > 1 || !arrived {
        tokio::task::yield_now().await;
    }
    {
        let mut traffic = role.path().traffic();
        traffic.task_flushes = false;
        traffic.push_out(&mut work.settled);
    }
    role.core.read(work);
    true
}

impl Core {
    /// Hands over all outcomes that were read, and then notifies callers, one at a time.
    fn read(&self, work: &mut Work) {
        if work.settled.is_empty() && work.notices.is_empty() {
            return;
        }
        self.send(work);
        self.notices.add(&mut work.notices);
        while let Some(notice) = self.notices.take() {
            self.carry_out(notice, work);
            self.send(work);
            self.notices.add(&mut work.notices);
        }
    }
}
