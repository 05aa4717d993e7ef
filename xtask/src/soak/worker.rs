use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use redis_locks::{Guard, LockError, Locks, Request};
use rustix::time::{ClockId, clock_gettime};

use super::{
    TTL, WAIT,
    history::{Event, WORKER_SHIFT},
    kind::{Kind, is_volatile},
    random::Random,
    store::Store,
};

const TASKS: u64 = 4;

/// A hold is looked at this often, to see whether it is valid.
const LOOK: Duration = Duration::from_millis(5);

/// What a call may take beyond its own bound: a command timeout, a pause by the nemesis, and a
/// machine that is busy with all of this.
const GRACE: Duration = Duration::from_secs(6);

/// One worker process: `soak-worker <durable> <volatile> <store> <seed> <number>`.
pub(crate) fn work(arguments: &[String]) -> Result<()> {
    let [durable, volatile, store, seed, number] = arguments else {
        bail!("soak-worker is started by the soak");
    };
    let (seed, number): (u64, u64) = (seed.parse()?, number.parse()?);
    let open = |url: &str| {
        Locks::builder().url(url).ttl(TTL).command_timeout(Duration::from_millis(200)).open()
    };
    let (durable, volatile) = (open(durable)?, open(volatile)?);
    // Holds are told apart by number, among all workers that ever ran.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.store(number << WORKER_SHIFT, Ordering::SeqCst);

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("a runtime")?;
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for task in 0..TASKS {
            let worker = Task {
                durable: durable.clone(),
                volatile: volatile.clone(),
                store: Store::connect(store)?,
                random: Random::new(seed ^ (number << 8) ^ task),
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

struct Task {
    durable: Locks,
    volatile: Locks,
    store: Store,
    random: Random,
    next: &'static AtomicU64,
}

impl Task {
    /// Locks and unlocks until the process is killed.
    async fn run(mut self) -> Result<()> {
        loop {
            let (kind, keys) = Kind::pick(|limit| self.random.below(limit));
            let request = self.request(kind, &keys);
            let start = Instant::now();
            // Some lose their patience at a bad moment.
            let patience = if self.random.once_in(8) {
                self.random.millis(0..10)
            } else {
                Duration::from_secs(3600)
            };
            let outcome = tokio::time::timeout(patience, request.acquire()).await;
            let took = start.elapsed();
            if took > WAIT + GRACE {
                tell(Event::Late { took: took.as_millis().try_into().unwrap_or(u64::MAX) })?;
            }
            match outcome {
                Err(_) => {}
                Ok(Ok(guard)) => self.hold(kind, keys, guard).await?,
                Ok(Err(LockError::Busy { .. })) => tell(Event::Busy)?,
                Ok(Err(LockError::Backend { .. })) => {
                    tell(Event::Failed)?;
                    tokio::time::sleep(self.random.millis(1..50)).await;
                }
                Ok(Err(other)) => return Err(other).context("an error that nothing explains"),
            }
        }
    }

    fn request(&self, kind: Kind, keys: &[u64]) -> Request {
        let locks = if is_volatile(keys[0]) { &self.volatile } else { &self.durable };
        let key = keys[0];
        let request = match kind {
            Kind::Mutex => locks.mutex(format!("mutex{key}")),
            Kind::Read => locks.read(format!("catalog{key}")),
            Kind::Write => locks.write(format!("catalog{key}")),
            Kind::Permit(limit) => locks.permit(format!("pool{key}"), limit),
            Kind::All => locks.all(keys.iter().map(|key| format!("mutex{key}"))),
        };
        let request = if kind.is_fenced() { request.fenced() } else { request };
        request.wait(WAIT)
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

        // What is counted under a mutex, is counted on each key of several.
        let mut counters = Vec::new();
        if let Some(fence) = fence.filter(|_| kind.is_mutex()) {
            for key in keys {
                let plain = self.store.read_plain(key)?;
                let fenced = self.store.read_fenced(key, fence)?;
                counters.push((key, fence, plain, fenced));
            }
        }
        // Mostly short; now and then long enough for several renewals.
        let work = if self.random.once_in(100) {
            self.random.millis(0..3000)
        } else {
            self.random.millis(0..8)
        };
        let until = Instant::now() + work;
        while Instant::now() < until && guard.is_held() {
            tokio::time::sleep(LOOK.min(until - Instant::now())).await;
            look(&guard, &mut valid);
        }
        for (key, fence, plain, fenced) in counters {
            self.store.write_plain(key, plain + 1)?;
            tell(Event::Plain { key })?;
            if let Some(fenced) = fenced
                && self.store.write_fenced(key, fence, fenced + 1)?
            {
                tell(Event::Fenced { key })?;
            }
        }
        look(&guard, &mut valid);
        if let Some(at) = valid {
            tell(Event::Ended { hold, at })?;
        }
        if self.random.once_in(4) {
            drop(guard);
            return Ok(());
        }
        let start = Instant::now();
        match guard.release().await {
            Ok(()) => {}
            Err(LockError::Lost { .. }) => tell(Event::Lost)?,
            Err(LockError::Backend { .. }) => tell(Event::Failed)?,
            Err(other) => return Err(other).context("an error that nothing explains"),
        }
        let took = start.elapsed();
        if took > GRACE {
            tell(Event::Late { took: took.as_millis().try_into().unwrap_or(u64::MAX) })?;
        }
        Ok(())
    }
}

/// Notes the present time if the guard is valid. The time is read first: a process that is frozen
/// in between must not claim to have been valid afterwards.
fn look(guard: &Guard, valid: &mut Option<u64>) {
    let at = now();
    if !guard.remaining().is_zero() {
        *valid = Some(at);
    }
}

/// Nanoseconds of the clock that all processes of this machine share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

fn tell(event: Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{event}")?;
    Ok(out.flush()?)
}
