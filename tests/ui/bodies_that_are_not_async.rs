use redis_locks::{LockError, Locks};

async fn value(locks: Locks) -> Result<u32, LockError> {
    locks.mutex("k").run(|guard| 5).await
}

async fn nothing(locks: Locks) -> Result<(), LockError> {
    locks.mutex("k").lead(|guard| println!("leads")).await
}

async fn block(locks: Locks) -> Result<(), LockError> {
    locks.mutex("k").run(async { println!("runs") }).await
}

fn main() {}
