use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f(v: Vec<u8>) -> R<()> {
    v.
}

fn main() {}
