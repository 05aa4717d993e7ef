use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", ttl = "1s", ttl = "2s")]
async fn f() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", keys = ["a", "b"])]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", read, write)]
async fn h() -> R<()> {
    Ok(())
}

fn main() {}
