use std::sync::MutexGuard;

use redis_locks::{LockError, redis_lock};

#[redis_lock(key = "k:{id}")]
fn f(id: MutexGuard<'_, u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
