//! The thread that talks to the server: one for each `Locks`, whatever runtimes the callers use.
//!
//! Callers change slots themselves, under short locks, and post what the slots want sent. The
//! engine sends it in batches, feeds the answers and the passing of time back into the slots, and
//! makes sure that what nobody wants any more leaves the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::clock::Moment;
use crate::demand::Demand;
use crate::error::{Fault, FaultClass};
use crate::hold::Hold;
use crate::slot::{Act, Confirm, Insight, Reap, Slot, Waiter, World};
use crate::store::{Answer, Command, Store};
use crate::table::{Handle, SlotId, Table, slot_id};
use crate::{LockError, Token};
use run::Engine;
use timers::Alarm;

mod flight;
mod reaper;
mod run;
pub(crate) mod timers;

/// What callers post to the engine.
#[derive(Debug)]
pub(crate) enum Message {
    /// Send this for a slot, and confirm the outcome to whoever waits for it.
    Send { slot: SlotId, command: Command, confirm: Option<Confirm> },
    /// Send this for nobody's slot.
    Query { command: Command, reply: oneshot::Sender<Result<Answer, Fault>> },
    /// See to it that this token leaves.
    Reap(Reap),
    /// The hold of this token was ended by force.
    Forced(String),
    /// Look at the slot at this time.
    Wake(SlotId, Moment),
    /// The slot of this timer is gone.
    Disarm(Alarm),
    /// Connect now, and say how it went.
    Connect(oneshot::Sender<Result<(), Fault>>),
    /// Take no more work, clean up, and say when it is done.
    Shutdown(oneshot::Sender<()>),
    /// Fail as a bug would.
    #[cfg(test)]
    Panic,
}

/// What callers and engine share, apart from the way from one to the other.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) table: Table,
    pub(crate) manager: Arc<str>,
    /// Whether grants are told by message at present.
    told: AtomicBool,
    closed: AtomicBool,
    numbers: AtomicU64,
}

impl Core {
    fn world(&self) -> World {
        let now = Moment::now();
        World {
            now,
            told: self.told.load(Ordering::Relaxed),
            manager: Arc::clone(&self.manager),
            spread: now.scattered() ^ self.manager.as_bytes().last().copied().unwrap_or(0),
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Makes the store, on the engine's thread; again after a failure of the engine.
pub(crate) type StoreFactory = Box<dyn Fn(&Arc<str>) -> Box<dyn Store> + Send + Sync>;

/// A caller's way to the engine. The thread starts with the first message.
pub(crate) struct Link {
    pub(crate) core: Arc<Core>,
    mailbox: OnceLock<mpsc::UnboundedSender<Message>>,
    factory: Arc<StoreFactory>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("manager", &self.core.manager).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(factory: StoreFactory) -> Self {
        let manager = uuid::Uuid::new_v4().simple().to_string();
        let core = Core {
            table: Table::new(),
            manager: manager.get(..12).unwrap_or(&manager).into(),
            told: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            numbers: AtomicU64::new(1),
        };
        Self { core: Arc::new(core), mailbox: OnceLock::new(), factory: Arc::new(factory) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.closed.load(Ordering::Acquire)
    }

    /// Joins the waiters of a lock.
    pub(crate) fn ask(self: &Arc<Self>, demand: Arc<Demand>) -> Asking {
        let (handle, answer) = oneshot::channel();
        let number = self.core.number();
        let slot = slot_id(&demand, number);
        let waiter = Waiter { id: number, handle, demand, asked: Moment::now() };
        self.change(&slot, |slot, world, acts| slot.ask(waiter, world, acts));
        Asking { link: Arc::clone(self), slot, number, answer, answered: false }
    }

    /// Ends a hold whose guard is gone.
    pub(crate) fn release(&self, slot: &SlotId, hold: &Arc<Hold>, confirm: Option<Confirm>) {
        self.change(slot, |slot, world, acts| slot.release(hold, confirm, world, acts));
    }

    /// Asks the server for a longer lease, or whether the lock is still ours.
    pub(crate) fn confirm(
        &self,
        slot: &SlotId,
        confirm: Confirm,
        change: impl FnOnce(&mut Slot<Handle>, &mut Vec<Act<Handle>>) -> bool,
    ) {
        let mut acts = Vec::new();
        if let Some(slot) = self.core.table.shard(slot).get_mut(slot) {
            change(slot, &mut acts);
        }
        let mut confirm = Some(confirm);
        for act in acts {
            if let Act::Send(command) = act {
                self.post(Message::Send { slot: slot.clone(), command, confirm: confirm.take() });
            }
        }
    }

    /// Sends a command that belongs to no slot.
    pub(crate) async fn query(&self, command: Command) -> Result<Answer, Fault> {
        let (reply, answer) = oneshot::channel();
        self.post(Message::Query { command, reply });
        answer.await.unwrap_or_else(|_| Err(Fault::new(FaultClass::Refused, "the engine stopped")))
    }

    /// What this process knows of a lock that the server does not: of its mutex, and where `shared`
    /// also of what several can hold.
    pub(crate) fn insights(&self, main: &str, shared: bool) -> Vec<Insight> {
        let now = Moment::now();
        let insight = |id: &str| self.core.table.shard(id).get(id).map(|slot| slot.insight(now));
        let mut insights: Vec<_> = insight(main).into_iter().collect();
        if shared {
            let ids = self.core.table.ids().into_iter();
            let of_it = ids
                .filter(|id| id.strip_prefix(main).is_some_and(|number| number.starts_with('\0')));
            insights.extend(of_it.filter_map(|id| insight(&id)));
        }
        insights
    }

    /// The hold of a token was ended by force: who has it here is to look.
    pub(crate) fn forced(&self, token: &Token) {
        // Without an engine nobody has anything.
        let _ = self.post(Message::Forced(token.wire().to_string()));
    }

    pub(crate) async fn connect(&self) -> Result<(), Fault> {
        let (reply, answer) = oneshot::channel();
        self.post(Message::Connect(reply));
        answer.await.unwrap_or_else(|_| Err(Fault::new(FaultClass::Refused, "the engine stopped")))
    }

    pub(crate) async fn shutdown(&self) {
        let first = !self.core.closed.swap(true, Ordering::AcqRel);
        if first && self.mailbox.get().is_some() {
            let (done, finished) = oneshot::channel();
            self.post(Message::Shutdown(done));
            // The engine ends by dropping the sender, which is an answer as well.
            let _ = finished.await;
        }
    }

    #[cfg(test)]
    pub(crate) fn crash(&self) {
        self.post(Message::Panic);
    }

    /// Changes a slot and does what it wants done.
    fn change(
        &self,
        id: &SlotId,
        change: impl FnOnce(&mut Slot<Handle>, &World, &mut Vec<Act<Handle>>),
    ) {
        let mut acts = Vec::new();
        let world = self.core.world();
        let mut slots = self.core.table.shard(id);
        // Looked up by reference first: a slot that exists costs no allocation.
        let slot = match slots.get_mut(id) {
            Some(slot) => slot,
            None => slots.entry(Arc::clone(id)).or_insert_with(Slot::new),
        };
        change(slot, &world, &mut acts);
        let alarm =
            if slot.is_idle() { slots.remove(id).and_then(|slot| slot.alarm) } else { None };
        drop(slots);
        if let Some(alarm) = alarm {
            self.post(Message::Disarm(alarm));
        }
        let mut heard = true;
        for act in acts {
            match act {
                Act::Send(command) => {
                    let slot = Arc::clone(id);
                    heard &= self.post(Message::Send { slot, command, confirm: None });
                }
                Act::Grant(handle, hold) => {
                    if let Err(Ok(hold)) = handle.send(Ok(hold)) {
                        self.release(id, &hold, None);
                    }
                }
                Act::Fail(handle, error) => drop(handle.send(Err(error))),
                Act::Reap(reap) => drop(self.post(Message::Reap(reap))),
                Act::Wake(at) => heard &= self.post(Message::Wake(Arc::clone(id), at)),
            }
        }
        if !heard {
            self.close(id);
        }
    }

    /// Tells the waiters of a slot that nobody works for them any more.
    fn close(&self, id: &SlotId) {
        let Some(mut slot) = self.core.table.shard(id).remove(id) else { return };
        let mut acts = Vec::new();
        slot.close(&LockError::Shutdown, SHUT_DOWN, &self.core.world(), &mut acts);
        for act in acts {
            if let Act::Fail(handle, error) = act {
                // A waiter that left needs no answer.
                let _ = handle.send(Err(error));
            }
        }
    }

    /// Posts to the engine. After a shutdown nobody reads it: then it returns `false`, and whoever
    /// waits for an answer in the message is told by the loss of its other end.
    fn post(&self, message: Message) -> bool {
        let mailbox = self.mailbox.get_or_init(|| self.spawn());
        mailbox.send(message).is_ok()
    }

    fn spawn(&self) -> mpsc::UnboundedSender<Message> {
        let (sender, mut mailbox) = mpsc::unbounded_channel();
        let (core, factory) = (Arc::clone(&self.core), Arc::clone(&self.factory));
        let engine = move || {
            loop {
                let run = || Engine::run(&core, &mut mailbox, &factory);
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(()) => return,
                    // A bug in the engine: what it knew may be wrong, so nobody keeps a lock on
                    // its word, and it starts afresh.
                    Err(_) => Engine::bury(&core),
                }
            }
        };
        // Without a thread the sender's other end is gone, and every post is answered by that.
        drop(thread::Builder::new().name("redis-locks".into()).spawn(engine));
        sender
    }
}

/// A place among the waiters. Dropping it gives the place up, and the lock as well if it has been
/// granted meanwhile.
#[derive(Debug)]
pub(crate) struct Asking {
    link: Arc<Link>,
    slot: SlotId,
    number: u64,
    answer: oneshot::Receiver<Result<Arc<Hold>, LockError>>,
    answered: bool,
}

impl Asking {
    pub(crate) fn slot(&self) -> &SlotId {
        &self.slot
    }

    /// Waits for the lock.
    pub(crate) async fn granted(&mut self) -> Result<Arc<Hold>, LockError> {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(LockError::Shutdown))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(hold)) => self.link.release(&self.slot, &hold, None),
            Ok(Err(_)) => {}
            Err(_) => self.link.change(&self.slot, |slot, world, acts| {
                slot.cancel(self.number, world, acts);
            }),
        }
    }
}

/// Why a hold ended that a shutdown ended.
const SHUT_DOWN: &str = "its `Locks` were shut down";

/// How long a shutdown waits for its releases to be confirmed.
const FAREWELL: Duration = Duration::from_secs(3);
