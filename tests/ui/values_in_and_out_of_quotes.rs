use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", on_lost = "finish", release = "later")]
async fn quoted() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", renew, fair)]
async fn bare() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", permits = -1)]
async fn negative() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", renew = "false")]
async fn switch() -> R<()> {
    Ok(())
}

fn main() {}
