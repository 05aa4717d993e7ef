//! The engine: one for each `Locks`, whatever runtimes the callers use.
//!
//! Callers step the machines themselves, under locks that are held for a short time, and put the
//! machines' questions on the queue of the place that has the lock. The engine's own thread
//! supervises the connections, reads answers unless a task of the caller's runtime does, and runs
//! timers.

mod asking;
pub(crate) mod core;
#[cfg(test)]
pub(crate) mod driven;
mod engine_waker;
mod idle_leases;
mod lifecycle;
mod lock_id;
mod notice_list;
mod outages;
mod outcomes;
pub(crate) mod path;
pub(crate) mod places;
pub(crate) mod reader;
mod reading;
#[cfg(test)]
mod reading_tests;
mod reaper;
mod released;
#[cfg(test)]
mod rest_tests;
mod run;
mod runtime;
mod shutdown;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod timers;
mod turn;
#[cfg(test)]
mod waker_tests;

pub(crate) use asking::{Asking, HasLink};
pub(crate) use lock_id::LockId;
pub(crate) use runtime::BlockingCall;
pub(crate) use table::{Handle, NotGranted};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::Names;
use crate::domain::value::Finish;
use crate::lock::hold::Hold;
use crate::lock::{self, Confirm, Env, LocalView, Machine};
use crate::store::wire::{BUG, Directory, bug};
use crate::store::{Answer, Command, Connector, Verb};
use crate::{LockError, LossReason, Token, observe};
use core::Core;
use path::Results;
use places::{Place, Places};

/// The arbiter: a server, a cluster, or the memory of this process.
pub(crate) enum Arbiter {
    One(Arc<dyn Connector>),
    /// Several nodes, or a node that another may replace.
    Several(Arc<dyn Directory>),
}

/// Creates the arbiter for the manager of this name.
pub(crate) type ArbiterFactory<'a> = &'a dyn Fn(&Arc<str>) -> Arbiter;

/// A handle to the engine, whose thread starts when it is first needed.
pub(crate) struct Link {
    core: Arc<Core>,
    thread: OnceLock<()>,
}

impl Link {
    pub(crate) fn new(time_limit: Duration, arbiter: ArbiterFactory<'_>) -> Self {
        let unique = crate::domain::env::unique();
        let manager = unique.simple().to_string();
        let manager: Arc<str> = manager.get(..12).unwrap_or(&manager).into();
        let spread = unique.as_bytes()[15];
        let places = match arbiter(&manager) {
            Arbiter::One(connector) => Places::one(connector, time_limit, spread),
            Arbiter::Several(directory) => Places::several(directory, time_limit, spread),
        };
        let core = Core::new(places, &manager);
        Self { core, thread: OnceLock::new() }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Whether there are several nodes, so that keys may be on their way between them.
    pub(crate) fn has_map(&self) -> bool {
        self.core.places.as_several().is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Starts the engine's thread, if it does not run yet.
    pub(crate) fn start(&self) {
        self.thread.get_or_init(|| spawn(&self.core));
    }

    /// Releases a hold whose guard was dropped, or completes it. Returns the outcome if it is known at once.
    /// Otherwise the outcome is reported to what `confirm` makes.
    pub(crate) fn release(
        &self,
        id: &LockId,
        hold: &Arc<Hold>,
        finish: &Finish,
        confirm: impl FnOnce() -> Option<Confirm>,
    ) -> Option<Result<(), LockError>> {
        if self.core.is_forked() {
            return Some(Err(forked(hold)));
        }
        let (mut outcome, mut has_begun) = (None, false);
        self.core.act(|work| {
            self.core.step(id, work, |machine, env| {
                has_begun = true;
                outcome = Some(machine.release(hold, finish, confirm, env));
            });
        });
        // Where no machine was found, the hold had ended and its machine was removed.
        let outcome = outcome.unwrap_or_else(|| match has_begun {
            // It panicked, which must not pass for success.
            true => Some(Err(LockError::backend(Some(&id.main), &bug()))),
            false => Some(lock::ended(hold, Moment::now())),
        });
        self.core.wake_each(Arc::clone(hold), hold.waiting_joined());
        hold.report_release();
        outcome
    }

    /// Has the machine of a hold send a question to the server, and report the outcome to the
    /// caller.
    pub(crate) fn ask(
        &self,
        id: &LockId,
        change: impl FnOnce(&mut Machine<Handle>, &mut Env<'_, Handle>),
    ) {
        if !self.core.is_forked() {
            self.core.act(|work| self.core.step(id, work, change));
        }
    }

    /// Gives a hold up without releasing its token.
    pub(crate) fn detach(&self, id: &LockId, hold: &Arc<Hold>, may_lag: bool) -> Option<Token> {
        let mut token = None;
        self.ask(id, |machine, env| token = machine.detach(hold, may_lag, env));
        self.core.wake_each(Arc::clone(hold), hold.waiting_joined());
        hold.report_release();
        token
    }

    /// What the machines of a key know that the server does not.
    pub(crate) fn views(&self, main: &str) -> Vec<LocalView> {
        let (now, wall) = (Moment::now(), crate::domain::env::wall());
        let shard = self.core.table.shard(main);
        shard.of_key(main).map(|machine| LocalView::of(machine, now, wall)).collect()
    }

    /// The demand of a call that waits.
    pub(crate) fn waiting(&self, id: &LockId, number: u64) -> Option<Arc<Demand>> {
        let shard = self.core.table.shard(&id.main);
        shard.get(id)?.machine.waiting(number).map(Arc::clone)
    }

    /// Whether `is_it` accepts the demand of a caller of this process that holds this key or waits
    /// for it. `is_it` gets the hold of a caller that holds it.
    pub(crate) fn any_demand(
        &self,
        main: &str,
        is_it: &mut dyn FnMut(&Demand, Option<&Hold>) -> bool,
    ) -> bool {
        let (now, table) = (Moment::now(), &self.core.table);
        if table.shard(main).of_key(main).any(|machine| machine.any_demand(now, is_it)) {
            return true;
        }
        table.beside.ids(main).iter().any(|id| {
            let shard = table.shard(&id.main);
            shard.get(id).is_some_and(|resident| resident.machine.any_demand(now, is_it))
        })
    }

    /// The hold of a token was ended by force: its machine asks the server.
    pub(crate) fn forced(&self, token: &Token) {
        let event = crate::store::Event::Forced { token: token.wire().to_string() };
        self.core.act(|work| self.core.receive(places::FIRST, event, work));
    }

    /// Panics, as a bug in the engine would.
    #[cfg(test)]
    pub(crate) fn crash(&self) {
        self.core.crashes.store(1, std::sync::atomic::Ordering::SeqCst);
        self.core.waker.wake();
    }

    /// Panics once more while the failure is handled.
    #[cfg(test)]
    pub(crate) fn crash_for_good(&self) {
        self.core.crashes.store(2, std::sync::atomic::Ordering::SeqCst);
        self.core.waker.wake();
    }

    /// Sends a command that belongs to no machine.
    pub(crate) async fn query(&self, command: Command) -> Result<Answer, Fault> {
        if let (Verb::Scan { cursor }, None) = (&command.verb, self.core.places.only()) {
            let cursor = *cursor;
            return self.scan(cursor, command).await;
        }
        let answer = self.core.query(command);
        self.start();
        answer.await.unwrap_or_else(|_| Err(Fault::stopped()))
    }

    /// The same after the map, if there is one, has been read again: keys that were moving between
    /// two nodes may have arrived by then.
    pub(crate) async fn query_again(&self, command: Command) -> Result<Answer, Fault> {
        let Some(several) = self.core.places.as_several() else {
            return self.query(command).await;
        };
        let answer = self.core.query_at(&several.unrouted, command);
        self.core.waker.wake();
        answer.await.unwrap_or_else(|_| Err(Fault::stopped()))
    }

    /// Lists the keys of one node after the other, in the order in which this process first saw them. One
    /// that replaces another comes last, and is listed from its beginning: cursors are good at their
    /// own node only. So nothing is left out, and some keys may come twice.
    async fn scan(&self, cursor: u64, command: Command) -> Result<Answer, Fault> {
        if cursor == 0 {
            self.mapped().await?;
        }
        let (first, cursor) = (cursor >> CURSOR_BITS, cursor & ((1 << CURSOR_BITS) - 1));
        let primaries = self.core.places.primaries();
        let after =
            |id| primaries.iter().filter(move |place| place.id >= id).min_by_key(|it| it.id);
        let Some(place) = after(first) else {
            return Ok(Answer::Keys { keys: Vec::new(), next: None });
        };
        if place.id >> (u64::BITS - CURSOR_BITS) > 0 {
            let what = "so many nodes have come and gone that there are no cursors for this one";
            return Err(Fault::new(FaultClass::Unsupported, what));
        }
        let cursor = if place.id == first { cursor } else { 0 };
        let answer = self.core.query_at(place, Command { verb: Verb::Scan { cursor }, ..command });
        match answer.await.unwrap_or_else(|_| Err(Fault::stopped()))? {
            Answer::Keys { keys, next } => {
                let next = next.map(|next| (place.id, next));
                let next = next.or_else(|| Some((after(place.id + 1)?.id, 0)));
                Ok(Answer::Keys { keys, next: next.map(|(id, next)| next | id << CURSOR_BITS) })
            }
            answer => Ok(answer),
        }
    }

    /// Connects now, and waits until that succeeds or fails.
    pub(crate) async fn connect(&self) -> Result<(), Fault> {
        self.mapped().await?;
        let primaries = self.core.places.primaries();
        let asked: Vec<_> = primaries.iter().map(|place| self.when_ready(place)).collect();
        let mut first = Ok(());
        for answer in asked {
            first = first.and(answer.await.unwrap_or_else(|_| Err(Fault::stopped())));
        }
        first
    }

    /// Has each primary do the command, all at once. `names` gives the names of any number of locks, of
    /// which one belongs to each primary.
    pub(crate) async fn query_each(
        &self,
        names: impl Fn(u32) -> Names,
        command: impl Fn(Names) -> Command,
    ) -> Result<(), Fault> {
        /// More than enough for a key of each node, if there are some hundred.
        const MOST_NAMES: u32 = 16_384;
        if self.core.places.as_several().is_some_and(|several| !several.has_map()) {
            self.query(command(names(0))).await?;
        }
        let primaries = self.core.places.primaries();
        let of = |place: &Arc<Place>| {
            let is_there = |names: &Names| self.core.places.of(names.main()).id == place.id;
            let names = (0..MOST_NAMES).map(&names).find(is_there)?;
            Some(self.core.query_at(place, command(names)))
        };
        let asked: Vec<_> = primaries.iter().filter_map(of).collect();
        self.start();
        for answer in asked {
            answer.await.unwrap_or_else(|_| Err(Fault::stopped()))?;
        }
        Ok(())
    }

    /// Waits until there is a map.
    async fn mapped(&self) -> Result<(), Fault> {
        match self.core.places.as_several().filter(|several| !several.has_map()) {
            Some(several) => {
                self.when_ready(&several.unrouted).await.unwrap_or_else(|_| Err(Fault::stopped()))
            }
            None => Ok(()),
        }
    }

    fn when_ready(&self, place: &Arc<Place>) -> oneshot::Receiver<Result<(), Fault>> {
        let (reply, answer) = oneshot::channel();
        let mut results = Results::default();
        place.path.traffic().when_ready(reply, &mut results);
        self.core.act(|work| self.core.take_in(&mut results, work));
        self.core.waker.wake();
        self.start();
        answer
    }
}

/// The error of a release in a forked child process, which must not touch what belongs to the parent.
fn forked(hold: &Hold) -> LockError {
    let reason = hold.loss(Moment::now()).unwrap_or(LossReason::Expired);
    hold.lost_error(reason)
}

fn spawn(core: &Arc<Core>) {
    #[cfg(test)]
    if crate::domain::env::simulated::is_active() {
        // The simulation drives the core itself.
        return;
    }
    observe::describe();
    let ending = EndsCore(Arc::clone(core));
    let engine = move || {
        let core = &ending.0;
        while catch_unwind(AssertUnwindSafe(|| run::serve(core))).is_err() {
            // A bug made the engine panic. What it knew may be wrong, so every hold ends as lost, and a
            // new engine starts from nothing.
            observe::log::bug(BUG);
            core.restart();
        }
    };
    // Where no thread can be started, the closure is dropped, and with it what ends the core.
    let _ = thread::Builder::new().name("redis-locks".into()).spawn(engine);
}

/// Ends the core when its thread ends, for whatever reason. No request could be answered then.
struct EndsCore(Arc<Core>);

impl Drop for EndsCore {
    fn drop(&mut self) {
        run::end(&self.0);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.core.is_forked() {
            // In a forked child process, dropping the parts would write to the parent's
            // connections, or close them.
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        self.core.abandon();
    }
}

/// The highest bits of a cursor contain the node that it belongs to. The other bits are enough for
/// any node's cursor.
const CURSOR_BITS: u32 = 48;
