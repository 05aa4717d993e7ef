//! Clocks, random bits and the process id.
//!
//! The engine reads the clock of leases, draws random bits and asks for the process id here alone. In
//! tests a thread can have a separate environment, in which the simulation sets all three. What only
//! waits, such as a blocked thread, may use the clock of the standard library.

use std::cell::RefCell;
#[cfg(unix)]
use std::sync::OnceLock;
use std::time::SystemTime;

use uuid::Uuid;

/// Nanoseconds on the clock that leases are measured with.
pub(crate) fn nanos() -> u64 {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    clock()
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn clock() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    // `Instant` stands still while the host is suspended, and a lease does not. Apple's monotonic clock
    // counts sleep, and others' do not.
    #[cfg(target_vendor = "apple")]
    let clock = ClockId::Monotonic;
    #[cfg(not(target_vendor = "apple"))]
    let clock = ClockId::Boottime;
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn clock() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The time of day, for people.
pub(crate) fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(now) = simulated::wall() {
        return SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(now);
    }
    SystemTime::now()
}

/// 128 random bits.
///
/// They come from the system. A generator of this process, which `uuid` uses when some crate
/// enables it, would give the same numbers in all copies that `fork` makes of the process, and so
/// the same tokens.
pub(crate) fn unique() -> Uuid {
    #[cfg(test)]
    if let Some(bits) = simulated::bits() {
        return uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
    }
    // A guard may be dropped after the thread-local storage of its thread.
    let bits = RESERVE.try_with(|reserve| reserve.borrow_mut().take());
    let bits = bits.unwrap_or_else(|_| Reserve::empty().take());
    // Where the system gives no random bytes, `uuid` has to use its own generator.
    bits.map_or_else(Uuid::new_v4, |bits| uuid::Builder::from_random_bytes(bits).into_uuid())
}

thread_local! {
    static RESERVE: RefCell<Reserve> = const { RefCell::new(Reserve::empty()) };
}

/// Random bytes of the system that were not used yet. Asking for sixteen takes as long as asking for all
/// of these, and longer than all else that a free lock in memory needs.
struct Reserve {
    bytes: [u8; 1024],
    left: usize,
    /// A forked child process must not use those of its parent.
    process: u32,
    #[cfg(test)]
    fills: usize,
}

impl Reserve {
    const fn empty() -> Self {
        Self {
            bytes: [0; 1024],
            left: 0,
            process: 0,
            #[cfg(test)]
            fills: 0,
        }
    }

    fn take(&mut self) -> Option<[u8; 16]> {
        let process = process();
        if self.left == 0 || self.process != process {
            (self.left, self.process) = (0, process);
            getrandom::fill(&mut self.bytes).ok()?;
            self.left = self.bytes.len();
            #[cfg(test)]
            {
                self.fills += 1;
            }
        }
        let (rest, bits) = self.bytes.get(..self.left)?.split_last_chunk()?;
        self.left = rest.len();
        Some(*bits)
    }
}

/// Which process this is. After a `fork` it is another one.
pub(crate) fn process() -> u32 {
    #[cfg(test)]
    if let Some(process) = simulated::process() {
        return process;
    }
    unforked().unwrap_or_else(std::process::id)
}

/// The process id at registration, and the guard that says whether the process has forked since.
#[cfg(unix)]
static BEFORE_FORKS: OnceLock<Option<(forkguard::atfork::Guard, u32)>> = OnceLock::new();

/// Registers for notifications of forks, so that [`process`] need not ask the system. Those calls
/// made up an eighth of the cost of a lock.
pub(crate) fn notice_forks() {
    #[cfg(unix)]
    BEFORE_FORKS
        .get_or_init(|| Some((forkguard::atfork::Guard::try_new().ok()?, std::process::id())));
}

#[cfg(unix)]
fn unforked() -> Option<u32> {
    // This must not wait: in a child process the thread that was to initialize it may not exist.
    let (guard, process) = BEFORE_FORKS.get()?.as_ref()?;
    (!guard.clone().detected_fork()).then_some(*process)
}

#[cfg(not(unix))]
fn unforked() -> Option<u32> {
    None
}

#[cfg(test)]
pub(crate) mod simulated {
    //! An environment that belongs to one test thread.

    use std::cell::{Cell, RefCell};
    use std::future::Future;
    use std::pin::Pin;

    /// A task that was spawned, and its simulated runtime.
    pub(crate) type SpawnedTask = (u32, Pin<Box<dyn Future<Output = ()>>>);

    #[derive(Clone, Copy)]
    pub(crate) struct Env {
        pub(crate) now: u64,
        /// What the wall clock shows, if it differs.
        wall: Option<u64>,
        pub(crate) process: u32,
        runtime: Option<u32>,
        state: u64,
    }

    thread_local! {
        static ENV: Cell<Option<Env>> = const { Cell::new(None) };

        static SPAWNED: RefCell<Vec<SpawnedTask>> = const { RefCell::new(Vec::new()) };
    }

    /// From now on this thread has a separate environment, which begins at `now` with this seed.
    pub(crate) fn begin(now: u64, seed: u64) {
        ENV.set(Some(Env { now, wall: None, process: 1, runtime: None, state: seed | 1 }));
    }

    /// Whether this thread has a separate environment.
    pub(crate) fn is_active() -> bool {
        ENV.get().is_some()
    }

    /// The thread uses the real clock, random bits and process id again.
    pub(crate) fn end() {
        ENV.set(None);
    }

    pub(crate) fn set_now(now: u64) {
        change(|env| env.now = now);
    }

    pub(crate) fn set_wall(wall: u64) {
        change(|env| env.wall = Some(wall));
    }

    pub(crate) fn set_process(process: u32) {
        change(|env| env.process = process);
    }

    /// From now on this thread belongs to this simulated runtime, or to none.
    pub(crate) fn set_runtime(runtime: Option<u32>) {
        change(|env| env.runtime = runtime);
    }

    pub(crate) fn runtime() -> Option<u32> {
        ENV.get().and_then(|env| env.runtime)
    }

    /// Leaves a task to the simulation, to be polled on this runtime.
    pub(crate) fn spawn(runtime: u32, task: impl Future<Output = ()> + 'static) {
        SPAWNED.with_borrow_mut(|spawned| spawned.push((runtime, Box::pin(task))));
    }

    /// The tasks that were spawned since the last call.
    pub(crate) fn spawned() -> Vec<SpawnedTask> {
        SPAWNED.take()
    }

    pub(super) fn now() -> Option<u64> {
        ENV.get().map(|env| env.now)
    }

    pub(super) fn wall() -> Option<u64> {
        ENV.get().map(|env| env.wall.unwrap_or(env.now))
    }

    pub(super) fn process() -> Option<u32> {
        ENV.get().map(|env| env.process)
    }

    pub(super) fn bits() -> Option<u128> {
        let mut bits = None;
        change(|env| bits = Some(u128::from(next(env)) << 64 | u128::from(next(env))));
        bits
    }

    fn next(env: &mut Env) -> u64 {
        env.state = env.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = env.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn change(with: impl FnOnce(&mut Env)) {
        ENV.set(ENV.get().map(|mut env| {
            with(&mut env);
            env
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_tokens_of_64_000_pairs_take_at_most_2_000_calls_of_the_system() {
        let mut reserve = Reserve::empty();
        let drawn: BTreeSet<_> = (0..64_000).map(|_| reserve.take().unwrap()).collect();
        assert_eq!(drawn.len(), 64_000);
        assert!(reserve.fills <= 2_000, "{}", reserve.fills);
    }

    #[test]
    fn a_forked_child_process_draws_other_bits_than_its_parent() {
        let mut parent = Reserve::empty();
        parent.take().unwrap();
        let Reserve { bytes, left, fills, .. } = parent;
        let process = process().wrapping_add(1);
        let mut child = Reserve { bytes, left, process, fills };
        assert_ne!(parent.take(), child.take());
        assert_eq!((parent.fills, child.fills), (1, 2));
    }
}
