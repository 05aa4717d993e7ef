#![allow(unused)]
use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "order:{ordr_id}:{regoin}")]
async fn f(order_id: u64, region: &str) -> R<u64> {
    let _ = region;
    Ok(order_id)
}

fn main() {}
