#![deny(unused_must_use, let_underscore_drop)]
use redis_locks::{LockError, Locks, redis_lock};

async fn unbound(locks: Locks) -> Result<(), LockError> {
    locks.mutex("k").acquire().await?;
    Ok(())
}

fn underscored(locks: Locks) -> Result<(), LockError> {
    let _ = locks.mutex("k").blocking_acquire()?;
    Ok(())
}

fn request_alone(locks: Locks) {
    locks.mutex("k").ttl(std::time::Duration::from_secs(1));
}

fn never_awaited(locks: Locks) {
    locks.mutex("k").acquire();
    locks.mutex("k").run(async |_| 5);
    annotated();
}

#[redis_lock(key = "k")]
async fn annotated() -> Result<(), LockError> { Ok(()) }

fn main() {}
