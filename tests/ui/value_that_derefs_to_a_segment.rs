#![allow(unused)]
use redis_locks::{LockError, redis_lock};
use std::sync::MutexGuard;

#[redis_lock(key = "k:{id}")]
fn f(id: MutexGuard<'_, u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
