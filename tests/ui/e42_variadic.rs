use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
unsafe extern "C" fn f(n: u32, mut more: ...) -> R<u32> {
    Ok(n)
}

fn main() {}
