use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", lock_at_most_for = "1m", lock_at_least_for = "1s")]
async fn shedlock() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", lockAtMostFor = "1m", lease_time = "1m", wait_time = "1s", watchdog)]
async fn redisson() -> R<()> {
    Ok(())
}

#[redis_lock(lock_name = "k", acquire_timeout = 3, wait_timeout = 3, max_wait = 3, on_timeout = skip)]
async fn klock() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", mode = write, auto_renew = true, keep_alive = true, skip, fallback = 1)]
async fn others() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", token, fencing = true, concurrency = 4, limit = 4, at_least = "1s", at_most = "1s")]
async fn more() -> R<()> {
    Ok(())
}

fn main() {}
