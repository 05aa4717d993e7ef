use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

struct S;

#[redis_lock(key = "k")]
impl S {
    fn f(&self) {}
}

#[redis_lock(key = "k")]
struct T;

#[redis_lock(key = "k")]
mod m {}

fn uses() {
    S.f();
    let _ = T;
}

fn main() {}
