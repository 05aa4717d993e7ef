#![allow(unused, non_upper_case_globals)]
use redis_locks::{LockError, redis_lock};

const RATE: f64 = 1.5;
static tenant: &str = "acme";

#[redis_lock(key = "k:{RATE}")]
fn float() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k:{N}{id}")]
fn touching<const N: usize>(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k:{tenant}:{id}")]
fn small(id: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
