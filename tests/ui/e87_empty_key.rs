use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "")]
async fn f() -> R<()> {
    Ok(())
}

#[redis_lock(key(""))]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(keys = [])]
async fn h() -> R<()> {
    Ok(())
}

#[redis_lock(keys = ["a", "b", "a"])]
async fn i() -> R<()> {
    Ok(())
}

fn main() {}
