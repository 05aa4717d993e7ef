use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", tll = "30s")]
async fn f() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", repair_orfan = "30s")]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", timeout = "30s")]
async fn h() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", frobnicate)]
async fn i() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", redis = client, blocking = false, namespace = "x")]
async fn j() -> R<()> {
    Ok(())
}

fn main() {}
