use redis_locks::{LockError, redis_lock};

#[redis_lock(key = "k", on_error = async { 1 })]
async fn block() -> u32 {
    1
}

#[redis_lock(key = "k", on_error = async |err| 1)]
async fn closure() -> u32 {
    1
}

#[redis_lock(key = "k", on_error = |err| async { 1 })]
async fn closure_of_a_block() -> u32 {
    1
}

#[redis_lock(key = "k", on_error = |err| async move { 1 })]
fn blocking() -> u32 {
    1
}

fn main() {}
