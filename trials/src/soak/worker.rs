use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis_locks::{Guard, LockError, LockRequest, Locks, LossReason, Scripting};

use super::addresses::Addresses;
use super::belief::Auditor;
use super::clock::now;
use super::event::{Event, Number, tell};
use super::gift::Gift;
use super::history::WORKER_SHIFT;
use super::jobs;
use super::kind::{Kind, every_lock, home_of, is_forced, is_volatile, pick_forced};
use super::opening::{Opening, is_quorum};
use super::operator;
use super::port_map::PortMap;
use super::random::Random;
use super::standstill::{self, Stopwatch};
use super::store::Store;
use super::terms::Terms;
use super::worker_terms::WorkerTerms;
use super::{LONGEST_TTL, TTL, WAIT, tenant};

/// More than there are keys: in each process, several want the same one at the same time.
const TASKS: u64 = 16;

/// How often a worker checks that its hold is valid.
const LOOK: Duration = Duration::from_millis(5);

/// How much longer than its own limit a call may take: a command timeout, a fault of the nemesis,
/// and the load of the machine.
const GRACE: Duration = Duration::from_secs(6);

/// One worker process.
pub(crate) fn work(terms: &WorkerTerms) -> Result<()> {
    let &WorkerTerms { ref addresses, ref store, seed, number, without_scripts, mutexes_only } =
        terms;
    let Addresses { durable, volatile, direct, ports, replicas, rejoin } = addresses;
    let scripting = if without_scripts { Scripting::Never } else { Scripting::Auto };
    let (ports, rejoin) = (PortMap::parse(ports)?, *rejoin);
    let open = |url: &str, replicas| {
        let (url, ports) = (url.to_owned(), ports.clone());
        Manager::open(Opening { url, scripting, ports, replicas, rejoin })
    };
    let managers = Arc::new([open(durable, *replicas)?, open(volatile, 0)?]);
    // Holds are distinguished by number, among all workers that ever ran.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.store(number << WORKER_SHIFT, Ordering::SeqCst);

    standstill::watch(move |Range { start: from, end: until }| {
        // A worker that can't tell has been killed.
        let _ = tell(Event::Stood { worker: number, from, until });
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("a runtime")?;
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for task in 0..TASKS {
            let worker = Task {
                managers: Arc::clone(&managers),
                auditor: Auditor::new(direct),
                store: Store::connect(store)?,
                random: Random::new(seed ^ (number << 8) ^ task),
                mutexes_only,
                on_quorum: is_quorum(durable),
                next: &NEXT,
                lease: String::new(),
            };
            tasks.push(tokio::spawn(worker.run()));
        }
        for task in tasks {
            task.await.context("a task of the worker")??;
        }
        Ok(())
    })
}

/// What all tasks of the process share for one place, until one of them shuts it down.
struct Manager {
    opening: Opening,
    locks: RwLock<Locks>,
}

impl Manager {
    fn open(opening: Opening) -> Result<Self> {
        let locks = RwLock::new(opening.open()?);
        Ok(Self { opening, locks })
    }

    fn current(&self) -> Locks {
        self.locks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the manager for all tasks. Returns the former one.
    fn replace(&self) -> Result<Locks> {
        let new = self.opening.open()?;
        let mut locks = self.locks.write().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::replace(&mut locks, new))
    }
}

struct Task {
    /// Of durable locks, and of volatile ones.
    managers: Arc<[Manager; 2]>,
    auditor: Auditor,
    store: Store,
    random: Random,
    mutexes_only: bool,
    /// There are no permits there, no leases linger, and no one server has all locks.
    on_quorum: bool,
    next: &'static AtomicU64,
    /// The one of the last hold.
    lease: String,
}

/// A hold of this worker.
struct Held {
    hold: u64,
    kind: Kind,
    keys: Vec<u64>,
    /// The lease, where it is renewed.
    lease: Option<Duration>,
    /// When it was last seen valid.
    valid: Option<u64>,
}

/// A key's counters as they were read: the one that trusts the lock, and the one that checks fences.
struct Counter {
    key: u64,
    fence: u64,
    plain: u64,
    fenced: Option<u64>,
}

impl Task {
    /// Locks and unlocks until the process is killed.
    async fn run(mut self) -> Result<()> {
        loop {
            if self.random.once_in(600) {
                self.shut_down().await?;
            }
            if self.random.once_in(8) {
                self.adopt().await?;
            }
            if self.random.once_in(30) {
                self.stay_at_home().await?;
            }
            if self.random.once_in(20) {
                self.operate().await?;
            }
            if self.random.once_in(20) && !self.on_quorum {
                self.job().await?;
            }
            let pick = if self.random.once_in(6) { Kind::pick_forced } else { Kind::pick };
            let (kind, keys) = pick(self.mutexes_only, |limit| self.random.below(limit));
            if self.on_quorum && matches!(kind, Kind::Permit(_)) {
                continue;
            }
            let terms = Terms::pick(kind, is_volatile(keys[0]), &mut self.random);
            self.call(kind, keys, terms).await?;
        }
    }

    /// Uses a lock several times that hardly any other process uses.
    async fn stay_at_home(&mut self) -> Result<()> {
        let worker = self.next.load(Ordering::SeqCst) >> WORKER_SHIFT;
        let away = if self.random.once_in(6) { self.random.below(8) } else { 0 };
        let (home, terms) = (home_of(worker + away), Terms::at_home(&mut self.random));
        for _ in 0..1 + self.random.below(10) {
            self.call(Kind::Mutex, vec![home], terms).await?;
        }
        Ok(())
    }

    /// Does what an operator does, who looks at locks and ends holds by force.
    async fn operate(&mut self) -> Result<()> {
        let locks = self.managers[usize::from(self.random.once_in(2))].current();
        let watch = Stopwatch::start();
        let event = match self.random.below(12) {
            0..4 => {
                let mutexes_only = self.mutexes_only;
                let (key, name) = pick_forced(mutexes_only, |limit| self.random.below(limit));
                operator::force(&self.managers[0].current(), key, &name, tell).await?;
                None
            }
            4..8 if !self.mutexes_only => {
                let (random, on_quorum) = (&mut self.random, self.on_quorum);
                tenant::ask_for_its_lock(&locks, random, on_quorum).await?;
                None
            }
            8 => Some(operator::list(&locks, self.random.pick(&["mutex", "pool"])).await?),
            _ => Some(operator::look(&locks, &self.random.pick(&every_lock())).await?),
        };
        late_above(GRACE, watch)?;
        event.map_or(Ok(()), tell)
    }

    async fn call(&mut self, kind: Kind, keys: Vec<u64>, terms: Terms) -> Result<()> {
        let request = self.request(kind, &keys, terms);
        let watch = Stopwatch::start();
        // Some calls are dropped at a random moment.
        let patience = if self.random.once_in(8) {
            self.random.millis(0..10)
        } else {
            Duration::from_secs(3600)
        };
        let outcome = tokio::time::timeout(patience, request.acquire()).await;
        late_above(WAIT + GRACE, watch)?;
        match outcome {
            Err(_) => Ok(()),
            Ok(Ok(guard)) => self.granted(kind, keys, terms.renewed(), guard).await,
            Ok(Err(LockError::Backend { .. })) => {
                tell(Event::Failed)?;
                tokio::time::sleep(self.random.millis(1..50)).await;
                Ok(())
            }
            // Another task has shut the manager down in the meantime.
            Ok(Err(LockError::Shutdown)) => Ok(()),
            Ok(Err(error)) => explain(error),
        }
    }

    /// Adopts the hold that was given away first, if there is one.
    async fn adopt(&mut self) -> Result<()> {
        let Some(Gift { hold, kind, keys, token }) = self.store.take_gift()? else {
            return Ok(());
        };
        let terms = Terms::pick(kind, is_volatile(keys[0]), &mut self.random);
        let request = self.request(kind, &keys, terms);
        let watch = Stopwatch::start();
        let adopted = request.adopt(token).await;
        late_above(GRACE, watch)?;
        let guard = match adopted {
            Ok(guard) => guard,
            Err(LockError::Shutdown) => return Ok(()),
            Err(error) => return explain(error),
        };
        let mut valid = None;
        look(&guard, &mut valid);
        if let Some(at) = valid {
            tell(Event::Adopted { hold, at })?;
        }
        // It may have waited for an heir for longer than its lease.
        self.hold(Held { hold, kind, keys, lease: None, valid }, guard).await?;
        Ok(())
    }

    /// Does the job of the present slot of time, unless it was done, or fails at it.
    async fn job(&mut self) -> Result<()> {
        let from = now();
        let (slot, request) = jobs::request(&self.managers[0].current(), from);
        let watch = Stopwatch::start();
        let acquired = request.ttl(TTL).wait(WAIT).acquire().await;
        late_above(WAIT + GRACE, watch)?;
        let guard = match acquired {
            Ok(guard) => guard,
            Err(LockError::Done { .. }) => return tell(Event::FoundDone),
            Err(LockError::Shutdown) => return Ok(()),
            Err(error) => return explain(error),
        };
        let at = now();
        tokio::time::sleep(self.random.millis(0..50)).await;
        if self.random.once_in(3) {
            return release(guard, 0, None).await;
        }
        let watch = Stopwatch::start();
        let completed = guard.complete().await;
        late_above(GRACE, watch)?;
        match completed {
            Ok(()) => tell(Event::Done { slot, from, at }),
            Err(error) => explain(error),
        }
    }

    /// Shuts a manager down while others work with it, or drains it.
    async fn shut_down(&mut self) -> Result<()> {
        let server = usize::from(self.random.once_in(2));
        let old = self.managers[server].replace()?;
        let watch = Stopwatch::start();
        if self.random.once_in(2) {
            old.drain(self.random.millis(1..2_000)).await;
            tell(Event::Drained)?;
        } else {
            old.shutdown().await;
            tell(Event::ShutDown)?;
        }
        late_above(GRACE, watch)
    }

    fn request(&self, kind: Kind, keys: &[u64], terms: Terms) -> LockRequest {
        let locks = &self.managers[usize::from(is_volatile(keys[0]))].current();
        let request = kind.request(locks, keys);
        // About half of the permits have a slot.
        let slotted =
            matches!(kind, Kind::Permit(_)) && self.next.load(Ordering::SeqCst).is_multiple_of(2);
        let request = if slotted { request.slotted() } else { request };
        let terms = if self.on_quorum { terms.without_linger() } else { terms };
        terms.of(if kind.is_fenced() { request.fenced() } else { request })
    }

    async fn granted(
        &mut self,
        kind: Kind,
        keys: Vec<u64>,
        renewed: Option<Duration>,
        guard: Guard,
    ) -> Result<()> {
        if kind.is_fenced() && guard.fence().is_none() {
            bail!("a fenced {} hold has no fence", kind.name());
        }
        let lease = guard.token().to_string();
        let lease = lease.split('#').next().unwrap_or_default();
        if std::mem::replace(&mut self.lease, lease.to_owned()) == lease {
            tell(Event::Again)?;
        }
        let held = Held { lease: renewed, ..begin(self.next, kind, keys, &guard)? };
        if let Some((held, guard)) = self.hold(held, guard).await? {
            self.hold(held, guard).await?;
        }
        Ok(())
    }

    /// Uses a hold and ends it. A writer may go on as a reader.
    async fn hold(&mut self, mut held: Held, guard: Guard) -> Result<Option<(Held, Guard)>> {
        let fence = guard.fence().filter(|_| held.kind.is_fenced());
        self.compare(&held, &guard)?;
        let counters = self.read(held.kind, &held.keys, fence)?;
        self.work(&mut held, &guard).await?;
        self.write(&counters)?;
        look(&guard, &mut held.valid);
        if let Some(at) = held.valid {
            tell(Event::Ended { hold: held.hold, at })?;
        }
        // What was ended by force, or lost with its server, has that excuse.
        let lasts = !is_volatile(held.keys[0]) && !is_forced(held.keys[0]);
        let Held { hold, kind, keys, lease, .. } = held;
        match self.random.below(20) {
            0..5 => drop(guard),
            5 | 6 => {
                let gift = Gift { hold, kind, keys, token: guard.detach() };
                self.store.give(&gift)?;
            }
            7..12 if kind == Kind::Write => return downgrade(self.next, keys, guard).await,
            _ => release(guard, hold, lease.filter(|_| lasts)).await?,
        }
        Ok(None)
    }

    /// The counters of these keys. A mutex has the counter of its key, and several keys together
    /// have all of theirs.
    fn read(&mut self, kind: Kind, keys: &[u64], fence: Option<u64>) -> Result<Vec<Counter>> {
        let Some(fence) = fence.filter(|_| kind.is_mutex()) else { return Ok(Vec::new()) };
        let read = |key: &u64| {
            let (plain, fenced) =
                (self.store.read_plain(*key)?, self.store.read_fenced(*key, fence)?);
            Ok(Counter { key: *key, fence, plain, fenced })
        };
        keys.iter().map(read).collect()
    }

    /// Adds one to each counter, as it was read.
    fn write(&mut self, counters: &[Counter]) -> Result<()> {
        for Counter { key, fence, plain, fenced } in counters {
            self.store.write_plain(*key, plain + 1)?;
            tell(Event::Plain { key: *key })?;
            if let Some(fenced) = fenced
                && self.store.write_fenced(*key, *fence, fenced + 1)?
            {
                tell(Event::Fenced { key: *key })?;
            }
        }
        Ok(())
    }

    /// Mostly short; now and then long enough for several renewals.
    async fn work(&mut self, held: &mut Held, guard: &Guard) -> Result<()> {
        let work = if self.random.once_in(100) {
            self.random.millis(0..3000)
        } else {
            self.random.millis(0..8)
        };
        let until = Instant::now() + work;
        while Instant::now() < until && guard.is_held() {
            tokio::time::sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
            look(guard, &mut held.valid);
            if self.random.once_in(8) {
                self.compare(held, guard)?;
            }
            if self.random.once_in(30) {
                self.ask(guard).await?;
                held.lease = held.lease.and(Some(LONGEST_TTL));
            }
        }
        Ok(())
    }

    /// Asks the server for a longer lease, or whether it has the lock.
    async fn ask(&mut self, guard: &Guard) -> Result<()> {
        let watch = Stopwatch::start();
        let extends = self.random.once_in(2);
        let answer = if extends {
            guard.extend(self.random.pick(&[TTL, LONGEST_TTL])).await
        } else {
            guard.verify().await
        };
        late_above(GRACE, watch)?;
        match answer {
            Ok(()) if extends => tell(Event::Extended),
            Ok(()) => Ok(()),
            Err(error) => explain(error),
        }
    }

    /// Compares what the guard believes with what the server says, where nothing is lost on purpose.
    fn compare(&mut self, held: &Held, guard: &Guard) -> Result<()> {
        if self.on_quorum || is_volatile(held.keys[0]) || is_forced(held.keys[0]) {
            return Ok(());
        }
        let name = |key: &u64| format!("lock:{}", held.kind.lock(*key));
        let keys: Vec<String> = held.keys.iter().map(name).collect();
        let Some(excess) = self.auditor.excess(guard, &keys) else { return Ok(()) };
        let excess = excess.as_micros().try_into().unwrap_or(u64::MAX);
        tell(Event::Compared { hold: held.hold, excess, at: now() })
    }
}

/// A hold that is new.
fn begin(next: &AtomicU64, kind: Kind, keys: Vec<u64>, guard: &Guard) -> Result<Held> {
    let hold = next.fetch_add(1, Ordering::SeqCst);
    let mut valid = None;
    look(guard, &mut valid);
    if let Some(at) = valid {
        let number = Number::of(guard, kind.is_fenced());
        tell(Event::Granted { hold, kind, number, at, keys: keys.clone() })?;
    }
    Ok(Held { hold, kind, keys, lease: None, valid })
}

/// Turns a writer into a reader.
async fn downgrade(
    next: &AtomicU64,
    keys: Vec<u64>,
    guard: Guard,
) -> Result<Option<(Held, Guard)>> {
    let watch = Stopwatch::start();
    let downgraded = guard.downgrade().await;
    late_above(GRACE, watch)?;
    match downgraded {
        Ok(guard) => {
            tell(Event::Downgraded)?;
            Ok(Some((begin(next, Kind::Read, keys, &guard)?, guard)))
        }
        Err(error) => explain(error).map(|()| None),
    }
}

async fn release(guard: Guard, hold: u64, lease: Option<Duration>) -> Result<()> {
    let watch = Stopwatch::start();
    let released = guard.release().await;
    late_above(GRACE, watch)?;
    match released {
        Err(LockError::Lost { reason: LossReason::Expired, .. }) => {
            tell(Event::Lost { hold, lease, at: now() })
        }
        other => other.or_else(explain),
    }
}

/// Notes an error. Fails when nothing that happens here explains it.
fn explain(error: LockError) -> Result<()> {
    match error {
        LockError::Busy { .. } => tell(Event::Busy),
        LockError::Crowded { .. } => tell(Event::Crowded),
        LockError::Lost { .. } => tell(Event::Lost { hold: 0, lease: None, at: now() }),
        LockError::Backend { .. } => tell(Event::Failed),
        other => Err(other).context("an error that nothing explains"),
    }
}

fn late_above(limit: Duration, watch: Stopwatch) -> Result<()> {
    let Some(took) = watch.late_above(limit) else { return Ok(()) };
    tell(Event::Late { took: took.as_millis().try_into().unwrap_or(u64::MAX) })
}

/// Notes the present time if the guard is valid. The time is read first: a process that is frozen
/// in between must not claim to have been valid afterwards.
fn look(guard: &Guard, valid: &mut Option<u64>) {
    let at = now();
    if !guard.remaining().is_zero() {
        *valid = Some(at);
    }
}
