#![deny(deprecated)]
use redis_locks::{LockError, Locks};

async fn charge(locks: Locks) -> Result<(), LockError> {
    locks.lock("order:1").acquire().await?.release().await
}

fn main() {}
