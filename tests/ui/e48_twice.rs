use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "a")]
#[redis_lock(key = "b")]
async fn f() -> R<()> {
    Ok(())
}

fn main() {}
