use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f() -> std::io::Result<u32> {
    Ok(1)
}

#[redis_lock(key = "k")]
fn g() -> std::fmt::Result {
    Ok(())
}

fn main() {}
