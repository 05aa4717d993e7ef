use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f() {}

#[redis_lock(key = "k")]
fn g() {}

fn main() {}
