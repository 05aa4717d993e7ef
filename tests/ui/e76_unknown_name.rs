use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "order:{nothing_like_it}")]
async fn f(order_id: u64) -> R<u64> {
    Ok(order_id)
}

fn main() {}
