use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", once = "24h", replay)]
async fn replays() -> R<u32> { Ok(1) }

#[redis_lock(key = "k", once = "24h", replay)]
fn blocking() -> R<u32> { Ok(1) }

#[redis_lock(key = "k", once = "24h", replay, on_error = |_| 0)]
async fn handled() -> u32 { 1 }

fn by_request(locks: &redis_locks::Locks) {
    let _ = locks.mutex("k").share();
}

fn main() {}
