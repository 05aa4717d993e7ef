use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", ttl = "none", renew = true)]
async fn never_renewed() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_hold = "1m", ttl = "none")]
async fn never_limited() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "none", read)]
async fn never_shared() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "none", repair_orphan = "30s")]
async fn never_orphan() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "10s", renew = false, min_hold = "20s")]
async fn least_over_lease() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_hold = "1m", renew = false)]
async fn limit_without_renewal() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", min_hold = "2m", max_hold = "1m")]
async fn least_over_most() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = "forever", on_busy = Ok(()))]
async fn never_busy() -> R<()> {
    Ok(())
}

#[redis_lock(keys = ["a", "b"], read)]
async fn keys_shared() -> R<()> {
    Ok(())
}

fn main() {}
