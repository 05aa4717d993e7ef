use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

mod c {
    pub const X: u64 = 1;
}

#[redis_lock(key = "k:{}")]
async fn empty(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(key = "k:{_}")]
async fn wildcard(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(key = "k:{c::X}")]
async fn path(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(key = "k:{id + 1}")]
async fn sum(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(keys = ["k:{*id}", "k:{}"])]
async fn listed(id: &u64) -> R<u64> {
    Ok(*id)
}

fn main() {}
