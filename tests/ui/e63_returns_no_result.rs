use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f(n: u32) -> u32 {
    n
}

#[redis_lock(key = "k")]
fn g(n: u32) -> String {
    n.to_string()
}

#[redis_lock(key = "k")]
fn h(n: u32) -> impl std::fmt::Display {
    n
}

fn main() {}
