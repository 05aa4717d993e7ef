use redis_locks::{LockError, redis_lock};

const RATE: f64 = 1.5;

#[redis_lock(key = "k:{RATE}")]
fn float() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k:{N}{id}")]
fn touching<const N: usize>(id: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
