#![deny(unused_variables)]
use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f(id: u64) -> R<()> {
    Ok(())
}

#[redis_lock(key = "k")]
fn g(mut id: u64) -> R<()> {
    Ok(())
}

fn main() {}
