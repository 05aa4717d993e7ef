use redis_locks::{LockError, redis_lock as lock};

#[lock(key = "a")]
#[lock(key = "b")]
async fn f() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
