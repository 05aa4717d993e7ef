use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

struct S;

impl Drop for S {
    #[redis_lock(key = "k")]
    fn drop(&mut self) {}
}

impl Future for S {
    type Output = ();

    #[redis_lock(key = "k")]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

fn main() {}
