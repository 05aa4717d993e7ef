use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock]
async fn f() -> R<()> {
    Ok(())
}

#[redis_lock()]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(ttl = "30s")]
async fn h() -> R<()> {
    Ok(())
}

fn main() {}
