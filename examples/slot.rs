//! Ten jobs that share four devices, one device each: `cargo run --example slot`.
//!
//! A permit says that there is room for one more job. Its slot is the lowest free number, which no
//! other holder has, in any process.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

/// Each job with its device.
type Log = Mutex<Vec<(u32, u32)>>;

#[redis_lock(key = "example:gpu", permits = 4, slot = device, via = locks)]
fn render(locks: &Locks, log: &Log, job: u32) -> Result<(), LockError> {
    // A program that is started here would get CUDA_VISIBLE_DEVICES={device}.
    log.lock().unwrap_or_else(PoisonError::into_inner).push((job, device));
    thread::sleep(Duration::from_millis(20));
    Ok(())
}

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    for (job, device) in demo(&locks)? {
        println!("job {job} ran on device {device}");
    }
    locks.blocking_shutdown();
    Ok(())
}

/// Starts ten jobs at once. Four of them can run at a time.
pub(crate) fn demo(locks: &Locks) -> Result<Vec<(u32, u32)>, LockError> {
    let log = Log::default();
    thread::scope(|scope| {
        let start = |job| {
            let log = &log;
            scope.spawn(move || render(locks, log, job))
        };
        let jobs: Vec<_> = (0..10).map(start).collect();
        jobs.into_iter().try_for_each(|job| job.join().unwrap_or(Ok(())))
    })?;
    Ok(log.into_inner().unwrap_or_else(PoisonError::into_inner))
}
