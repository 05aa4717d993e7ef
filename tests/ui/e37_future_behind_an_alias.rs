use std::pin::Pin;

use redis_locks::{LockError, redis_lock};

type Hidden = Pin<Box<dyn Future<Output = u32>>>;

#[redis_lock(key = "k", on_error = |_| Box::pin(async { 0 }))]
fn f() -> Hidden {
    Box::pin(async move { 1 })
}

fn main() {}
