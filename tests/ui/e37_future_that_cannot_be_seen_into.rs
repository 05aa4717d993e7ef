use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

use std::future::Future;
use std::pin::Pin;

async fn g() -> R<u32> {
    Ok(1)
}

#[redis_lock(key = "k")]
fn f() -> Pin<Box<dyn Future<Output = R<u32>>>> {
    let future = g();
    Box::pin(future)
}

#[redis_lock(key = "k")]
fn h() -> impl Future<Output = R<u32>> {
    g()
}

type Hidden = Pin<Box<dyn Future<Output = R<u32>>>>;

#[redis_lock(key = "k")]
fn i() -> Hidden {
    Box::pin(async move { g().await })
}

#[redis_lock(key = "k")]
fn j() -> impl Future + Send {
    async move { 1 }
}

fn main() {}
