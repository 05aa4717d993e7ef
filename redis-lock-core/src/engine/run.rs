//! The engine's thread: waits for events, and lets the core handle them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::core::{Core, Work};
use super::places::{Place, PlaceId};
use super::reading::{BLIND_PAUSE, poll_place};
use super::runtime::BlockingCall;
use super::timers::Timer;
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::observe::caught;
use crate::store::wire::{Directory, Map, keep_listening};
use crate::store::{BoxFuture, Connected, Event, Hints};

/// The most hints that are handled in one turn.
const HINTS: usize = 1024;

/// The result of a job.
enum JobReport {
    Connected(PlaceId, u64, Result<Connected, Fault>),
    Looked(u64, Map),
}

/// What a place has besides its path.
#[derive(Default)]
struct PlaceTasks {
    /// The task that listens for hints, beside the connection of this epoch.
    listener: Option<(u64, JoinSet<()>)>,
    /// Whether its socket could not be watched at the last try. It is read every few milliseconds then.
    is_blind: bool,
}

struct Engine<'a> {
    core: &'a Arc<Core>,
    work: Box<Work>,
    inputs: mpsc::UnboundedReceiver<JobReport>,
    report: mpsc::UnboundedSender<JobReport>,
    hints: mpsc::UnboundedReceiver<(PlaceId, Event)>,
    hint_sender: mpsc::UnboundedSender<(PlaceId, Event)>,
    place_tasks: HashMap<PlaceId, PlaceTasks>,
}

/// Runs until no reference to the `Locks` is left, or until a shutdown is done. Without a runtime there is
/// no I/O, so it returns at once.
pub(super) fn serve(core: &Arc<Core>) {
    // Although it has a runtime, its thread is no task of it that could read in its place.
    let _call = BlockingCall::begin();
    let built = runtime::Builder::new_current_thread().enable_all().build();
    let own = OwnRuntime(built.ok());
    let Some(runtime) = &own.0 else { return };
    runtime.block_on(async {
        let (report, inputs) = mpsc::unbounded_channel();
        let (hint_sender, hints) = mpsc::unbounded_channel();
        let (place_tasks, work) = (HashMap::new(), Box::default());
        if let Some(several) = core.places.as_several() {
            tokio::spawn(keep_watching(Arc::clone(core), Arc::clone(&several.directory)));
        }
        let mut engine = Engine { core, work, inputs, report, hints, hint_sender, place_tasks };
        engine.run().await;
    });
}

/// Its end waits for no blocking call, such as the look-up of a host name.
struct OwnRuntime(Option<runtime::Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Ends the core: calls fail from now on. Each step is taken although a bug makes another one panic.
pub(super) fn end(core: &Core) {
    let mut work = Work::default();
    caught(|| core.end(&mut work));
    core.notices.add(&mut work.notices);
    caught(|| carry_out_rest(core));
    caught(|| core.on_ended());
    caught(|| carry_out_rest(core));
    core.notices.end();
}

/// Carries out all notices that are left, although some of them may block.
fn carry_out_rest(core: &Core) {
    loop {
        core.notices.hand_to_thread(core.notifier());
        let now = Moment::now();
        let due = core.notices.watch(now, core.notifier());
        if due == Moment::NEVER || core.notices.are_stuck() {
            return;
        }
        if !core.notices.has_threads() {
            // No other thread can be started, and this one has nothing else left to do.
            while let Some(notice) = core.notices.take() {
                core.act(|work| core.carry_out(notice, work));
            }
            return;
        }
        while Moment::now() < due && !core.notices.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Engine<'_> {
    async fn run(&mut self) {
        loop {
            #[cfg(test)]
            self.core.crash_if_planted();
            let due = self.turn();
            if self.core.is_done(Moment::now()) {
                return;
            }
            self.wait(due).await;
            self.take_hints();
        }
    }

    /// Does what is due, and returns when the next turn is due.
    fn turn(&mut self) -> Moment {
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                JobReport::Connected(place, number, made) => {
                    self.core.made(place, number, made, &mut self.work);
                }
                JobReport::Looked(number, map) => self.core.looked(number, &map, &mut self.work),
            }
        }
        let turn = self.core.turn(&mut self.work);
        for (place, number) in turn.connects {
            self.begin(place, number);
        }
        self.core.notices.add(&mut self.work.notices);
        self.core.notices.hand_to_thread(self.core.notifier());
        self.start_tasks();
        turn.due.min(self.core.notices.watch(Moment::now(), self.core.notifier()))
    }

    /// Connects to a place on this runtime, or reads the map for the unrouted place. The path limits the
    /// time for it.
    fn begin(&self, place: PlaceId, number: u64) {
        let Some(work) = self.job(place, number) else { return };
        let report = self.report.clone();
        tokio::spawn(async move {
            let done = std::panic::AssertUnwindSafe(work).catch_unwind().await;
            let input = done
                .unwrap_or_else(|_| Err(Fault::driver_panicked()))
                .unwrap_or_else(|fault| JobReport::Connected(place, number, Err(fault)));
            // When the engine has ended, it is not received.
            let _ = report.send(input);
        });
    }

    fn job(
        &self,
        place: PlaceId,
        number: u64,
    ) -> Option<BoxFuture<'static, Result<JobReport, Fault>>> {
        let place = self.core.places.get(place)?;
        if let Some(connector) = &place.connector {
            let (connecting, id) = (connector.connect(), place.id);
            return Some(Box::pin(async move {
                connecting.await.map(|made| JobReport::Connected(id, number, Ok(made)))
            }));
        }
        let several = self.core.places.as_several()?;
        let (directory, known) = (Arc::clone(&several.directory), several.names());
        Some(Box::pin(async move {
            directory.look(known).await.map(|map| JobReport::Looked(number, map))
        }))
    }

    /// Subscribes beside all present connections.
    fn start_tasks(&mut self) {
        let places = self.core.places.all();
        self.place_tasks.retain(|id, _| places.iter().any(|place| place.id == *id));
        for place in places.iter().filter(|place| !place.is_unrouted()) {
            let tasks = self.place_tasks.entry(place.id).or_default();
            if tasks.follow_epoch(place, &self.hint_sender) {
                // The end of a subscription can be reported at once; hints that are still queued do
                // no harm.
                let not_listening = Event::Listening { hints_enabled: false };
                self.core.receive(place.id, not_listening, &mut self.work);
            }
        }
    }

    async fn wait(&mut self, due: Moment) {
        let now = Moment::now();
        let due = self.core.waker.sleep_until(due, || Timer::first(self.core, now));
        let is_blind = self.place_tasks.values().any(|tasks| tasks.is_blind);
        let due = if is_blind { due.min(now.after(BLIND_PAUSE)) } else { due };
        let places = self.core.places.all();
        let ready = poll_fn(|context| poll_any(&places, &mut self.place_tasks, context));
        tokio::select! {
            biased;
            event = self.hints.recv() => {
                if let Some((place, event)) = event {
                    self.core.receive(place, event, &mut self.work);
                }
            }
            input = self.inputs.recv() => {
                if let Some(input) = input {
                    // It is queued behind those that came meanwhile.
                    let _ = self.report.send(input);
                }
            }
            () = ready => {}
            () = self.core.waker.woken() => {}
            () = sleep(due.since(now)) => {
                self.place_tasks.values_mut().for_each(|tasks| tasks.is_blind = false);
            }
        }
        self.core.waker.wakes();
    }

    fn take_hints(&mut self) {
        for _ in 0..HINTS {
            let Ok((place, event)) = self.hints.try_recv() else { return };
            self.core.receive(place, event, &mut self.work);
        }
    }
}

/// Ready when one of the places can be read or written, or when one turns out not to be watched.
fn poll_any(
    places: &[Arc<Place>],
    tasks: &mut HashMap<PlaceId, PlaceTasks>,
    context: &mut Context<'_>,
) -> Poll<()> {
    let mut ready = Poll::Pending;
    for place in places {
        let Some(tasks) = tasks.get_mut(&place.id).filter(|tasks| !tasks.is_blind) else {
            continue;
        };
        if let Poll::Ready(watched) = poll_place(place, context) {
            tasks.is_blind = watched.is_err();
            ready = Poll::Ready(());
        }
    }
    ready
}

impl PlaceTasks {
    /// Subscribes beside the present connection. Returns whether it ended an old subscription, which may
    /// lead to another server than the connection.
    fn follow_epoch(
        &mut self,
        place: &Place,
        hints: &mpsc::UnboundedSender<(PlaceId, Event)>,
    ) -> bool {
        let epoch = place.path.traffic().epoch();
        let mut ended = false;
        if self.listener.as_ref().map(|(epoch, _)| *epoch) != epoch {
            // The former task ends with its set.
            ended = self.listener.take().is_some();
            if let (Some(epoch), Some(connector)) = (epoch, &place.connector) {
                let hints = Hints::new(place.id, hints.clone());
                let mut listener = JoinSet::new();
                listener.spawn(keep_listening(Arc::clone(connector), hints, true));
                self.listener = Some((epoch, listener));
            }
        }
        ended
    }
}

/// Has the engine read the map whenever the directory is notified of a change.
pub(super) async fn keep_watching(core: Arc<Core>, directory: Arc<dyn Directory>) {
    loop {
        directory.changed().await;
        core.look_soon();
    }
}
