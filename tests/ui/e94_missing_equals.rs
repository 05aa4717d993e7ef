use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key "k")]
async fn f() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k" ttl = "30s")]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl)]
async fn h() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait =)]
async fn i() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", read = true)]
async fn j() -> R<()> {
    Ok(())
}

fn main() {}
