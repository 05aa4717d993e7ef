//! The thread that talks to the server: one for each `Locks`, whatever runtimes the callers use.
//!
//! Callers change slots themselves, under short locks, and post what the slots want sent. The
//! engine sends it in batches, feeds the answers and the passing of time back into the slots, and
//! makes sure that what nobody wants any more leaves the server.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Moment;
use crate::demand::Demand;
use crate::error::{Fault, FaultClass};
use crate::hold::Hold;
use crate::observe;
use crate::slot::{Act, Confirm, Insight, Reap, Slot, Waiter, World};
use crate::store::{Answer, Command, Store};
use crate::table::{Handle, SlotId, Table, slot_id};
use crate::{Guard, LockError, Locks, Token};
use lane::{Errand, Lane};
use run::Engine;
use timers::Alarm;

mod flight;
mod lane;
mod reaper;
mod run;
mod search;
pub(crate) mod timers;

#[cfg(test)]
mod tests;

/// What callers post to the engine.
#[derive(Debug)]
pub(crate) enum Message {
    /// Send this for a slot, and confirm the outcome to whoever waits for it.
    Send { slot: SlotId, command: Command, confirm: Option<Confirm> },
    /// Send this for nobody's slot.
    Query { command: Command, reply: oneshot::Sender<Result<Answer, Fault>> },
    /// See to it that this token leaves.
    Reap(Reap),
    /// The same after a try whose outcome is unknown.
    ReapAgain(Reap),
    /// Open a lane on this runtime; it posts here.
    OpenLane(runtime::Handle, mpsc::UnboundedSender<Self>),
    /// The lane has been closed.
    TendLane,
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
    lane: RwLock<Option<Arc<Lane>>>,
    /// Slots with nothing due soon, and when to set their timers: most are released before.
    nursery: Mutex<VecDeque<(Moment, SlotId)>>,
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

    fn lane(&self) -> Option<Arc<Lane>> {
        self.lane.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_lane(&self, lane: Option<Arc<Lane>>) {
        *self.lane.write().unwrap_or_else(PoisonError::into_inner) = lane;
    }

    /// Has the timer of a slot set later.
    fn nurse(&self, now: Moment, id: &SlotId) {
        self.nursery().push_back((now.after(NURSED), Arc::clone(id)));
    }

    /// The next slot whose timer is to be set now.
    fn grown_up(&self, now: Moment) -> Option<SlotId> {
        let mut nursery = self.nursery();
        if nursery.front().is_some_and(|(at, _)| *at <= now) {
            nursery.pop_front().map(|(_, id)| id)
        } else {
            None
        }
    }

    fn nursery(&self) -> MutexGuard<'_, VecDeque<(Moment, SlotId)>> {
        self.nursery.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Commands that tasks of a multi-threaded runtime sent while there was no lane.
    long_way: AtomicU32,
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
            lane: RwLock::new(None),
            nursery: Mutex::default(),
        };
        Self {
            core: Arc::new(core),
            mailbox: OnceLock::new(),
            factory: Arc::new(factory),
            long_way: AtomicU32::new(0),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.closed.load(Ordering::Acquire)
    }

    /// Ends a hold whose guard is gone.
    pub(crate) fn release(&self, slot: &SlotId, hold: &Arc<Hold>, confirm: Option<Confirm>) {
        self.change(slot, |slot, world, acts| slot.release(hold, confirm, world, acts));
        observe::released(hold);
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
        with: impl FnOnce(&mut Slot<Handle>, &World, &mut Vec<Act<Handle>>),
    ) {
        change(&self.core, &|message| self.post(message), id, with);
    }

    /// Posts to the engine. After a shutdown nobody reads it: then it returns `false`, and whoever
    /// waits for an answer in the message is told by the loss of its other end.
    fn post(&self, message: Message) -> bool {
        let Some(message) = self.by_lane(message) else { return true };
        let mailbox = self.mailbox.get_or_init(|| self.spawn());
        mailbox.send(message).is_ok()
    }

    /// Gives a message to the lane of the present runtime, where it may go that way.
    fn by_lane(&self, message: Message) -> Option<Message> {
        let errand = match Errand::of(message) {
            Ok(errand) => errand,
            Err(message) => return Some(message),
        };
        // Only a runtime with several threads reaches its own task sooner than the engine's.
        let here = runtime::Handle::try_current()
            .ok()
            .filter(|handle| handle.runtime_flavor() == runtime::RuntimeFlavor::MultiThread);
        let lane = self.core.lane.read().unwrap_or_else(PoisonError::into_inner);
        match &*lane {
            Some(lane) => {
                let from_here = here.is_some_and(|here| lane.is_of(&here));
                lane.offer(errand, from_here).map(Errand::into_message)
            }
            None => {
                drop(lane);
                let Some(here) = here else { return Some(errand.into_message()) };
                if self.long_way.fetch_add(1, Ordering::Relaxed) % lane::WORTH == lane::WORTH - 1 {
                    let mailbox = self.mailbox.get_or_init(|| self.spawn());
                    // Without an engine there is nothing to open a lane to.
                    let _ = mailbox.send(Message::OpenLane(here, mailbox.clone()));
                }
                Some(errand.into_message())
            }
        }
    }

    fn spawn(&self) -> mpsc::UnboundedSender<Message> {
        let (sender, mut mailbox) = mpsc::unbounded_channel();
        let (core, factory) = (Arc::clone(&self.core), Arc::clone(&self.factory));
        let engine = move || {
            observe::numbers::describe();
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

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(lane) = self.core.lane() {
            lane.close();
        }
    }
}

/// Changes a slot from outside of the engine, and does what it wants done; `post` says whether the
/// engine still listens.
fn change(
    core: &Core,
    post: &dyn Fn(Message) -> bool,
    id: &SlotId,
    with: impl FnOnce(&mut Slot<Handle>, &World, &mut Vec<Act<Handle>>),
) {
    // A guard may be dropped while its thread ends, after what the thread kept.
    let mut acts = SPARE.try_with(Cell::take).unwrap_or_default();
    let world = core.world();
    let mut slots = core.table.shard(id);
    // Looked up by reference first: a slot that exists costs no allocation.
    let slot = match slots.get_mut(id) {
        Some(slot) => slot,
        None => slots.entry(Arc::clone(id)).or_insert_with(Slot::new),
    };
    with(slot, &world, &mut acts);
    let unattended = slot.unattended(world.now);
    slot.nursed |= unattended.is_some_and(|due| due > world.now.after(SOON));
    let alarm = if slot.is_idle() { slots.remove(id).and_then(|slot| slot.alarm) } else { None };
    drop(slots);
    if let Some(alarm) = alarm {
        post(Message::Disarm(alarm));
    }
    let mut heard = true;
    match unattended {
        Some(due) if due > world.now.after(SOON) => core.nurse(world.now, id),
        Some(due) => heard &= post(Message::Wake(Arc::clone(id), due)),
        None => {}
    }
    for act in acts.drain(..) {
        match act {
            Act::Send(command) => {
                let slot = Arc::clone(id);
                heard &= post(Message::Send { slot, command, confirm: None });
            }
            Act::Grant(handle, hold) => {
                if let Err(Ok(hold)) = handle.send(Ok(hold)) {
                    let_go(core, post, id, &hold);
                }
            }
            Act::Fail(handle, error) => drop(handle.send(Err(error))),
            Act::Reap(reap) => drop(post(Message::Reap(reap))),
            Act::Wake(at) => heard &= post(Message::Wake(Arc::clone(id), at)),
            Act::Lost(hold) => observe::lost(&hold),
            Act::Contended(demand, holder) => observe::contended(&demand, holder.as_deref()),
        }
    }
    let _ = SPARE.try_with(|spare| spare.set(acts));
    if !heard {
        close(core, id);
    }
}

thread_local! {
    /// Room for what a slot wants done: each change wants it, and few leave it empty.
    static SPARE: Cell<Vec<Act<Handle>>> = const { Cell::new(Vec::new()) };
}

/// Ends a hold that nobody took.
fn let_go(core: &Core, post: &dyn Fn(Message) -> bool, id: &SlotId, hold: &Arc<Hold>) {
    change(core, post, id, |slot, world, acts| slot.release(hold, None, world, acts));
}

/// Tells the waiters of a slot that nobody works for them any more.
fn close(core: &Core, id: &SlotId) {
    let Some(mut slot) = core.table.shard(id).remove(id) else { return };
    let mut acts = Vec::new();
    slot.close(&LockError::Shutdown, SHUT_DOWN, &core.world(), &mut acts);
    for act in acts {
        match act {
            // A waiter that left needs no answer.
            Act::Fail(handle, error) => drop(handle.send(Err(error))),
            Act::Lost(hold) => observe::lost(&hold),
            _ => {}
        }
    }
}

/// A place among the waiters. Dropping it gives the place up, and the lock as well if it has been
/// granted meanwhile.
pub(crate) struct Asking {
    locks: Option<Locks>,
    slot: SlotId,
    number: u64,
    answer: oneshot::Receiver<Result<Arc<Hold>, LockError>>,
    /// Who of us had the lock at the time of asking, where somebody wants to know.
    pub(crate) behind: Option<Arc<Hold>>,
}

impl Asking {
    /// Joins the waiters of a lock.
    pub(crate) fn begin(locks: Locks, demand: Arc<Demand>) -> Self {
        let link = locks.link();
        let (handle, answer) = oneshot::channel();
        let number = link.core.number();
        let slot = slot_id(&demand, number);
        let mut behind = None;
        link.change(&slot, |slot, world, acts| {
            slot.ask(Waiter { id: number, handle, demand, asked: world.now }, world, acts);
            behind = slot.had_by().filter(|_| observe::is_listening()).cloned();
        });
        Self { locks: Some(locks), slot, number, answer, behind }
    }

    /// Waits for the lock.
    pub(crate) async fn granted(mut self) -> Result<Guard, LockError> {
        let answer = (&mut self.answer).await;
        // Taken out, so that nothing is left to be given up.
        let Some(locks) = self.locks.take() else { return Err(LockError::Shutdown) };
        let hold = answer.unwrap_or(Err(LockError::Shutdown))?;
        Ok(Guard::new(locks, Arc::clone(&self.slot), hold))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(locks) = &self.locks else { return };
        let link = locks.link();
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(hold)) => link.release(&self.slot, &hold, None),
            Ok(Err(_)) => {}
            Err(_) => link.change(&self.slot, |slot, world, acts| {
                slot.cancel(self.number, world, acts);
            }),
        }
    }
}

/// Why a hold ended that a shutdown ended.
const SHUT_DOWN: &str = "its `Locks` were shut down";

/// What is due later than this gets its timer later.
const SOON: Duration = Duration::from_secs(1);

/// When it gets it.
const NURSED: Duration = Duration::from_millis(500);

/// How long a shutdown waits for its releases to be confirmed.
const FAREWELL: Duration = Duration::from_secs(3);
