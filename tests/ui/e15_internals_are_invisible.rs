use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f() -> R<()> {
    let _ = __scope;
    Ok(())
}

fn main() {}
