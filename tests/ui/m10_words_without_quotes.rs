use redis_locks::{LockError, redis_lock};

#[redis_lock(key = "k", wait = none, ttl = none)]
fn f() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k", wait = forever, fence = x, guard = x)]
fn g() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
