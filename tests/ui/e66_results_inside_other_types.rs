use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

use std::ops::ControlFlow;
use std::task::Poll;

#[redis_lock(key = "k")]
async fn f() -> Option<R<u32>> {
    None
}

#[redis_lock(key = "k")]
fn g() -> Poll<R<u32>> {
    Poll::Pending
}

#[redis_lock(key = "k")]
fn h() -> ControlFlow<LockError> {
    ControlFlow::Continue(())
}

fn main() {}
