//! The engine's thread: it waits for something to happen, and has the core deal with it.

use std::future::poll_fn;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::SHUT_DOWN;
use super::core::{Core, Work};
use super::path::{Job, Reader};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::store::{Connected, Event, Hints, Readiness};

/// The most hints that are dealt with in one turn.
const HINTS: usize = 1024;

/// Fails as a bug would.
#[cfg(test)]
pub(super) static PANIC: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// What came of a job.
enum Input {
    Connected(u64, Connected),
    Failed(u64, Fault),
}

struct Engine<'a> {
    core: &'a Arc<Core>,
    work: Box<Work>,
    inputs: mpsc::UnboundedReceiver<Input>,
    report: mpsc::UnboundedSender<Input>,
    hints: mpsc::UnboundedReceiver<Event>,
    hint_sender: Hints,
    /// What listens for hints, beside the connection of this epoch.
    listener: Option<(u64, JoinHandle<()>)>,
    /// Tells when the connection of this epoch has something to read.
    readiness: Option<(u64, Box<dyn Readiness>)>,
}

/// Runs until nobody is left who could ask, or until a shutdown is done.
pub(super) fn serve(core: &Arc<Core>) {
    let built = runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = built {
        runtime.block_on(async {
            let (report, inputs) = mpsc::unbounded_channel();
            let (hint_sender, hints) = mpsc::unbounded_channel();
            let (listener, readiness) = (None, None);
            let work = Box::default();
            let mut engine =
                Engine { core, work, inputs, report, hints, hint_sender, listener, readiness };
            engine.run().await;
        });
    }
    // Without a selector there is no I/O, and nobody works for those who ask.
    core.closed.store(true, std::sync::atomic::Ordering::Release);
    core.end_all(&LockError::Shutdown, SHUT_DOWN);
    core.path.traffic().stop();
    core.notify_end();
}

impl Engine<'_> {
    async fn run(&mut self) {
        loop {
            #[cfg(test)]
            if PANIC.swap(false, std::sync::atomic::Ordering::SeqCst) {
                panic!("a planted bug");
            }
            let due = self.turn();
            if self.core.is_done(Moment::now()) {
                return;
            }
            self.wait(due).await;
            self.take_hints();
        }
    }

    /// Does what is due, and says when to come again.
    fn turn(&mut self) -> Moment {
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                Input::Connected(number, made) => self.core.made(number, made, &mut self.work),
                Input::Failed(number, fault) => self.core.not_made(number, fault, &mut self.work),
            }
        }
        let turn = self.core.turn(&mut self.work);
        for job in turn.jobs {
            self.begin(job);
        }
        self.core.notices.add(&mut self.work.notices);
        self.core.notices.hand_to_thread(self.core.notifier());
        self.follow_epoch();
        let now = Moment::now();
        let watch = self.core.notices.watch(now, self.core.notifier());
        turn.due.unwrap_or(now).min(watch)
    }

    /// Carries out a job on this runtime. How long it may take is the path's to decide.
    fn begin(&self, job: Job) {
        let Job::Connect(number) = job;
        let (connecting, report) = (self.core.connector.connect(), self.report.clone());
        let connecting = async move {
            let made = std::panic::AssertUnwindSafe(connecting).catch_unwind().await;
            let input = match made {
                Ok(Ok(made)) => Input::Connected(number, made),
                Ok(Err(fault)) => Input::Failed(number, fault),
                Err(_) => Input::Failed(number, Fault::driver_panicked()),
            };
            // Without an engine nobody reads it.
            let _ = report.send(input);
        };
        tokio::spawn(connecting);
    }

    /// Listens, and watches the socket, beside the connection that stands now.
    fn follow_epoch(&mut self) {
        let (epoch, reader, watcher) = {
            let traffic = self.core.path.traffic();
            (traffic.epoch(), traffic.reader(), traffic.watcher())
        };
        if self.listener.as_ref().map(|(epoch, _)| *epoch) != epoch {
            self.end_listening();
            if let Some(epoch) = epoch {
                let connector = Arc::clone(&self.core.connector);
                let listening = super::listen::keep_listening(connector, self.hint_sender.clone());
                self.listener = Some((epoch, tokio::spawn(listening)));
            }
        }
        let watched = epoch.filter(|_| reader == Reader::Engine);
        if self.readiness.as_ref().map(|(epoch, _)| *epoch) != watched {
            self.readiness = None;
            if let (Some(epoch), Some((_, watcher))) = (watched, watcher) {
                self.readiness = watcher().ok().map(|readiness| (epoch, readiness));
            }
        }
    }

    /// Ends the listener of a connection that is gone: it may lead to another server.
    fn end_listening(&mut self) {
        if let Some((_, listener)) = self.listener.take() {
            listener.abort();
            // A hint that is on its way is as good as any.
            self.core.hear(Event::Listening { hints_enabled: false }, &mut self.work);
        }
    }

    async fn wait(&mut self, due: Moment) {
        self.core.bell.sleep_until(due);
        let now = Moment::now();
        // A timer that was set before the bell knew how long the engine sleeps.
        let due = due.min(self.core.table.next_due());
        let sending = !self.core.path.traffic().is_sent();
        let readiness = self.readiness.as_ref().map(|(_, readiness)| readiness);
        let is_watched = readiness.is_some();
        let ready = async {
            match readiness {
                Some(readiness) => {
                    poll_fn(|context| readiness.poll_ready(context, sending)).await.is_ok()
                }
                None => std::future::pending().await,
            }
        };
        let mut is_blind = false;
        tokio::select! {
            biased;
            event = self.hints.recv() => {
                if let Some(event) = event {
                    self.core.hear(event, &mut self.work);
                }
            }
            input = self.inputs.recv() => {
                if let Some(input) = input {
                    // In order with those that came meanwhile.
                    let _ = self.report.send(input);
                }
            }
            fine = ready, if is_watched => is_blind = !fine,
            () = self.core.bell.rung() => {}
            () = tokio::time::sleep(due.since(now)) => {}
        }
        self.core.bell.wakes();
        if is_blind {
            // It is watched anew, or found to be closed.
            self.readiness = None;
        }
    }

    fn take_hints(&mut self) {
        for _ in 0..HINTS {
            let Ok(event) = self.hints.try_recv() else { return };
            self.core.hear(event, &mut self.work);
        }
    }
}
