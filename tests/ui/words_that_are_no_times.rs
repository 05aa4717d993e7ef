use std::time::Duration;

use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", wait = None, ttl = None)]
async fn none() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = false, ttl = false)]
async fn no() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = "never", ttl = "forever")]
async fn in_quotes() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = forever, ttl = never)]
async fn without_quotes() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = Some(limit), ttl = Some(limit))]
async fn wrapped(limit: Duration) -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = std::option::Option::None, max_hold = None, min_hold = "never")]
async fn others() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "never", max_hold = "1m")]
async fn contradiction() -> R<()> {
    Ok(())
}

fn main() {}
