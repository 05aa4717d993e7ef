use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(kee = "k", fence = token, guard = lock)]
async fn f(n: u32) -> R<u64> {
    lock.verify().await?;
    Ok(token)
}

fn main() {}
