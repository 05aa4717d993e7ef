use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", max_waiters = 0)]
async fn none() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_waiters = -1)]
async fn negative() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_waiters = "100")]
fn text() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_waiters)]
fn bare() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", queue_limit = 100)]
fn another_word() -> R<()> {
    Ok(())
}

fn main() {}
