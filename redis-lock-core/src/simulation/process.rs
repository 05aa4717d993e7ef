//! A process: its locks, its engine, its clock, and what has come in for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::clock::{ProcessClock, SECOND};
use super::plan::HistoryPlan;
use crate::Locks;
use crate::domain::fault::Fault;
use crate::domain::status::Topology;
use crate::engine::ArbiterFactory;
use crate::engine::core::{Core, Work};
use crate::engine::driven::Driven;
use crate::engine::places::{PlaceId, UNROUTED};
use crate::store::redis::NodeList;
use crate::store::wire::Map;
use crate::store::{Connected, Event as Hint};

/// How old an answer may be for the engine to rely on it.
const FRESH: Duration = Duration::from_secs(1);

pub(super) struct SimulatedProcess {
    pub(super) index: usize,
    pub(super) locks: Locks,
    pub(super) core: Arc<Core>,
    work: Box<Work>,
    pub(super) clock: ProcessClock,
    pub(super) is_alive: bool,
    pub(super) is_closing: bool,
    /// Its engine has ended.
    pub(super) is_over: bool,
    /// Nothing of it runs before this.
    pub(super) stands_until: u64,
    /// Its tasks don't run before this.
    pub(super) blocks_until: u64,
    /// Tasks that were woken meanwhile.
    pub(super) stood: Vec<usize>,
    pub(super) drive_at: Option<u64>,
    pub(super) drives: u64,
    /// Turns in a row that came soon after the one before, and when the last was.
    pub(super) spins: u32,
    pub(super) driven_at: u64,
    pub(super) tells_soon: bool,
    /// Its subscriptions, one for each place.
    pub(super) subscriptions: BTreeMap<PlaceId, SimulatedSubscription>,
    pub(super) deaf_until: u64,
    pub(super) inputs: Vec<(PlaceId, u64, Result<Connected, Fault>)>,
    /// Maps that were read.
    pub(super) maps: Vec<(u64, Result<Map, Fault>)>,
    /// What it knows of the nodes from sentinels.
    pub(super) listed: NodeList,
    pub(super) hints: Vec<(PlaceId, Hint)>,
    /// The runtimes of its callers.
    pub(super) runtimes: Vec<u32>,
    pub(super) runtimes_begun: u32,
    /// After how many commands a task tries to become the reader.
    opens_after: Option<u32>,
    /// Until when a task that reads was held up.
    pub(super) readers_held_until: u64,
    /// Wakes the engine when a socket that it watches can be read or written.
    pub(super) socket_news: Arc<SocketNews>,
    /// The tasks of a process that was killed: they are never polled, and never dropped before the
    /// history is over.
    pub(super) corpses: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

/// Whether something has happened at a socket that the engine watches.
#[derive(Default)]
pub(super) struct SocketNews(AtomicBool);

impl SocketNews {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for SocketNews {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A subscription, beside a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct SimulatedSubscription {
    pub(super) node: usize,
    /// The connection that it is beside.
    pub(super) epoch: Option<u64>,
    pub(super) is_listening: bool,
    /// When it last ended.
    pub(super) deaf_since: u64,
}

impl SimulatedProcess {
    pub(super) fn new(index: usize, plan: &HistoryPlan, arbiter: ArbiterFactory<'_>) -> Self {
        let of_plan = &plan.processes[index];
        let start = 5_000 * SECOND + index as u64 * 777 * SECOND;
        let clock = ProcessClock::new(start, of_plan.rate, 10 + index as u32);
        clock.enter();
        let timeout = Duration::from_nanos(of_plan.command_timeout);
        let builder = Locks::builder().label(format!("p{index}")).command_timeout(timeout);
        let locks = builder.simulated(arbiter);
        let core = Arc::clone(locks.link().core());
        if plan.path.replaces {
            core.places.all().iter().for_each(|it| it.path.traffic().distrust_after(FRESH));
        }
        Self {
            index,
            locks,
            core,
            work: Box::default(),
            clock,
            is_alive: true,
            is_closing: false,
            is_over: false,
            stands_until: 0,
            blocks_until: 0,
            stood: Vec::new(),
            drive_at: None,
            drives: 0,
            spins: 0,
            driven_at: 0,
            tells_soon: false,
            subscriptions: BTreeMap::new(),
            deaf_until: 0,
            inputs: Vec::new(),
            maps: Vec::new(),
            listed: NodeList::new(Topology::Sentinel),
            hints: Vec::new(),
            runtimes: Vec::new(),
            runtimes_begun: 0,
            opens_after: plan.readers.as_ref().map(|readers| readers.opens_after),
            readers_held_until: 0,
            socket_news: Arc::default(),
            corpses: Vec::new(),
        }
    }

    pub(super) fn tasks_stand_until(&self) -> u64 {
        self.stands_until.max(self.blocks_until)
    }

    /// One turn of its engine, with all that has come in.
    pub(super) fn turn(&mut self) -> Driven {
        for (place, hint) in std::mem::take(&mut self.hints) {
            self.core.receive(place, hint, &mut self.work);
        }
        for (place, number, made) in std::mem::take(&mut self.inputs) {
            match made {
                Ok(made) => self.core.made(place, number, Ok(made), &mut self.work),
                Err(fault) => self.core.made(place, number, Err(fault), &mut self.work),
            }
        }
        for (number, map) in std::mem::take(&mut self.maps) {
            match map {
                Ok(map) => self.core.looked(number, &map, &mut self.work),
                Err(fault) => self.core.made(UNROUTED, number, Err(fault), &mut self.work),
            }
        }
        if let Some(commands) = self.opens_after {
            let places = self.core.places.all();
            places.iter().for_each(|place| place.path.traffic().role.ask_after(commands));
        }
        let driven = self.core.drive(&mut self.work);
        let waker = Waker::from(Arc::clone(&self.socket_news));
        let due = self.core.watch_sockets(&waker);
        Driven { due: driven.due.min(due), ..driven }
    }

    /// The place by which it knows a node.
    pub(super) fn place_at(&self, node: usize) -> Option<PlaceId> {
        self.subscriptions
            .iter()
            .find(|(_, subscription)| subscription.node == node)
            .map(|(place, _)| *place)
    }

    /// Whether nothing is left of what it did; a process that was killed need not have cleaned up.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_alive || self.is_over || self.core.is_at_rest()
    }

    /// Ends it without sending anything to the server.
    pub(super) fn abandon(&mut self) {
        self.core.collect_notices(&mut self.work);
        let (error, reason) = (crate::LockError::Shutdown, crate::LossReason::Shutdown);
        self.core.act(|work| self.core.fail(&error, &reason, work));
    }
}
