use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
const fn f() -> R<()> {
    Ok(())
}

fn calls() -> R<()> {
    f()
}

fn main() {}
