use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{_}")]
async fn f(_: u32) -> R<()> {
    Ok(())
}

fn main() {}
