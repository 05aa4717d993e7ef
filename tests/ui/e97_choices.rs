use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", on_lost = cancle, release = later, permits = 0)]
async fn f() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", fence = 1, guard = lock.it, permits = "4", fair = "yes")]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", via = 5, on_busy = 7)]
async fn h() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", on_error = |error| error)]
async fn i() -> u32 {
    1
}

fn main() {}
