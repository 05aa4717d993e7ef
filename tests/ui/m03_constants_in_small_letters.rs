#![allow(non_upper_case_globals)]
use redis_locks::{LockError, redis_lock};

const rate: u32 = 2;
static tenant: &str = "acme";

#[redis_lock(key = "k:{rate}:{id}")]
fn constant(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k:{tenant}:{id}")]
fn fixed(id: u32) -> Result<(), LockError> {
    Ok(())
}

// Passed by name it is a value like any other.
#[redis_lock(key("k:{x}:{y}:{id}", x = rate, y = tenant))]
fn by_name(id: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
