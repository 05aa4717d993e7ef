use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{n}")]
async fn f(n: &u32) -> R<u32> {
    if *n == 0 {
        return Ok(0);
    }
    f(&(n - 1)).await
}

fn main() {}
