use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", crate = locks)]
async fn f() -> R<()> {
    Ok(())
}

fn main() {}
