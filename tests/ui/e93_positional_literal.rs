use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock("order:{id}")]
async fn f(id: u64) -> R<u64> {
    Ok(id)
}

fn main() {}
