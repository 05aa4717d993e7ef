use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis_locks::{Guard, LockError, Locks, Request, Scripting};

use super::belief::Auditor;
use super::clock::now;
use super::event::Event;
use super::history::WORKER_SHIFT;
use super::kind::{Kind, is_volatile};
use super::port_map::PortMap;
use super::random::Random;
use super::standstill::{self, Stopwatch};
use super::store::Store;
use super::{LONGEST_TTL, TTL, WAIT, scripting};

/// More than there are keys: in each process, several want the same one at the same time.
const TASKS: u64 = 16;

/// How often a worker checks that its hold is valid.
const LOOK: Duration = Duration::from_millis(5);

/// How much longer than its own limit a call may take: a command timeout, a fault of the nemesis,
/// and the load of the machine.
const GRACE: Duration = Duration::from_secs(6);

/// One worker process: `soak-worker <durable> <volatile> <servers, directly> <ports> <replicas>
/// <store> <seed> <number> <auto|never> <all|mutexes>`.
pub(crate) fn work(arguments: &[String]) -> Result<()> {
    let [durable, volatile, direct, ports, replicas, store, seed, number, way, kinds] = arguments
    else {
        bail!("soak-worker is started by the soak");
    };
    let (seed, number): (u64, u64) = (seed.parse()?, number.parse()?);
    let (scripting, ports) = (scripting::parse(way)?, PortMap::parse(ports)?);
    let open = |url: &str, replicas| {
        Manager::open(Opening { url: url.to_owned(), scripting, ports: ports.clone(), replicas })
    };
    let managers = Arc::new([open(durable, replicas.parse()?)?, open(volatile, 0)?]);
    let mutexes_only = kinds == "mutexes";
    // Holds are distinguished by number, among all workers that ever ran.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.store(number << WORKER_SHIFT, Ordering::SeqCst);

    standstill::watch();
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
                next: &NEXT,
            };
            tasks.push(tokio::spawn(worker.run()));
        }
        for task in tasks {
            task.await.context("a task of the worker")??;
        }
        Ok(())
    })
}

/// Where a manager finds its locks, and how it uses them.
struct Opening {
    url: String,
    scripting: Scripting,
    ports: PortMap,
    replicas: u32,
}

impl Opening {
    fn open(&self) -> Result<Locks> {
        let ports = self.ports.clone();
        let builder = Locks::builder()
            .url(&self.url)
            .ttl(TTL)
            .scripting(self.scripting)
            .replicas(self.replicas)
            .command_timeout(Duration::from_millis(200));
        // One server is reached where the URL says.
        if self.url.starts_with("redis://") {
            return Ok(builder.open()?);
        }
        let translated = move |host: &str, port| (host.to_owned(), ports.translate(port));
        Ok(builder.address_map(translated).open()?)
    }
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
    next: &'static AtomicU64,
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
            let (kind, keys) = Kind::pick(self.mutexes_only, |limit| self.random.below(limit));
            let request = self.request(kind, &keys);
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
                Err(_) => {}
                Ok(Ok(guard)) => self.hold(kind, keys, guard).await?,
                Ok(Err(LockError::Busy { .. })) => tell(Event::Busy)?,
                // Another task has shut the manager down in the meantime.
                Ok(Err(LockError::Shutdown)) => {}
                Ok(Err(LockError::Backend { .. })) => {
                    tell(Event::Failed)?;
                    tokio::time::sleep(self.random.millis(1..50)).await;
                }
                Ok(Err(other)) => return Err(other).context("an error that nothing explains"),
            }
        }
    }

    /// Shuts a manager down while others work with it.
    async fn shut_down(&mut self) -> Result<()> {
        let server = usize::from(self.random.once_in(2));
        let old = self.managers[server].replace()?;
        let watch = Stopwatch::start();
        old.shutdown().await;
        tell(Event::ShutDown)?;
        late_above(GRACE, watch)
    }

    fn request(&mut self, kind: Kind, keys: &[u64]) -> Request {
        let locks = &self.managers[usize::from(is_volatile(keys[0]))].current();
        let key = keys[0];
        let request = match kind {
            Kind::Mutex => locks.mutex(kind.lock(key)),
            Kind::Read => locks.read(kind.lock(key)),
            Kind::Write => locks.write(kind.lock(key)),
            Kind::Permit(limit) => locks.permit(kind.lock(key), limit),
            Kind::All => locks.all(keys.iter().map(|key| kind.lock(*key))),
        };
        let request = if kind.is_fenced() { request.fenced() } else { request };
        let ttls = [TTL / 2, TTL, LONGEST_TTL];
        let ttl = ttls[usize::try_from(self.random.below(3)).unwrap_or(0)];
        request.ttl(ttl).wait(WAIT)
    }

    async fn hold(&mut self, kind: Kind, keys: Vec<u64>, guard: Guard) -> Result<()> {
        let hold = self.next.fetch_add(1, Ordering::SeqCst);
        let fence = guard.fence();
        if kind.is_fenced() && fence.is_none() {
            bail!("a fenced {} hold has no fence", kind.name());
        }
        let mut valid = None;
        look(&guard, &mut valid);
        if let Some(at) = valid {
            tell(Event::Granted { hold, kind, fence, at, keys: keys.clone() })?;
        }

        self.compare(hold, kind, &keys, &guard)?;
        let counters = self.read(kind, &keys, fence)?;
        self.work(hold, kind, &keys, &guard, &mut valid).await?;
        self.write(&counters)?;
        look(&guard, &mut valid);
        if let Some(at) = valid {
            tell(Event::Ended { hold, at })?;
        }
        if self.random.once_in(4) {
            drop(guard);
            return Ok(());
        }
        release(guard).await
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
    async fn work(
        &mut self,
        hold: u64,
        kind: Kind,
        keys: &[u64],
        guard: &Guard,
        valid: &mut Option<u64>,
    ) -> Result<()> {
        let work = if self.random.once_in(100) {
            self.random.millis(0..3000)
        } else {
            self.random.millis(0..8)
        };
        let until = Instant::now() + work;
        while Instant::now() < until && guard.is_held() {
            tokio::time::sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
            look(guard, valid);
            if self.random.once_in(8) {
                self.compare(hold, kind, keys, guard)?;
            }
        }
        Ok(())
    }

    /// Compares what the guard believes with what the server says, where nothing is lost on purpose.
    fn compare(&mut self, hold: u64, kind: Kind, keys: &[u64], guard: &Guard) -> Result<()> {
        if is_volatile(keys[0]) {
            return Ok(());
        }
        let keys: Vec<String> =
            keys.iter().map(|key| format!("lock:{}", kind.lock(*key))).collect();
        let Some(excess) = self.auditor.excess(guard, &keys) else { return Ok(()) };
        let excess = excess.as_micros().try_into().unwrap_or(u64::MAX);
        tell(Event::Compared { hold, excess, at: now() })
    }
}

async fn release(guard: Guard) -> Result<()> {
    let watch = Stopwatch::start();
    match guard.release().await {
        Ok(()) => {}
        Err(LockError::Lost { .. }) => tell(Event::Lost)?,
        Err(LockError::Backend { .. }) => tell(Event::Failed)?,
        Err(other) => return Err(other).context("an error that nothing explains"),
    }
    late_above(GRACE, watch)
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

fn tell(event: Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{event}")?;
    Ok(out.flush()?)
}
