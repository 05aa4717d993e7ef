use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{t}")]
async fn f<T>(t: T) -> R<T> {
    Ok(t)
}

fn main() {}
