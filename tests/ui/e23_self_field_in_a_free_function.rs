use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{self.tenant}")]
async fn g(n: u32) -> R<u32> {
    Ok(n)
}

fn main() {}
