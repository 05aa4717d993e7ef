use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{0}")]
async fn f(id: u32) -> R<u32> {
    Ok(id)
}

#[redis_lock(key = "k:{}")]
async fn g(id: u32) -> R<u32> {
    Ok(id)
}

fn main() {}
