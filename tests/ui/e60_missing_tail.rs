use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f() -> R<i32> {
    Ok(1);
}

#[redis_lock(key = "k")]
fn g() -> R<i32> {
    Ok(1);
}

fn main() {}
