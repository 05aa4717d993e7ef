use std::future::{Future, IntoFuture, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use redis_locks::{LockError, redis_lock};

struct Own;

impl Future for Own {
    type Output = u32;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        Poll::Ready(1)
    }
}

struct Builder;

impl IntoFuture for Builder {
    type Output = u32;
    type IntoFuture = Own;
    fn into_future(self) -> Own {
        Own
    }
}

trait Service {
    type F;
    type Future;
    fn call(&self) -> Self::F;
    fn serve(&self) -> Self::Future;
}

impl Service for Own {
    type F = Ready<u32>;
    type Future = Ready<Result<u32, LockError>>;

    #[redis_lock(key = "k", on_error = |_| ready(0))]
    fn call(&self) -> Self::F {
        ready(1)
    }

    #[redis_lock(key = "k")]
    fn serve(&self) -> Self::Future {
        ready(Ok(1))
    }
}

#[redis_lock(key = "k", on_error = |_| Own)]
fn own() -> Own {
    Own
}

#[redis_lock(key = "k", on_error = |_| Builder)]
fn builder() -> Builder {
    Builder
}

#[redis_lock(key = "k", on_error = |_| unimplemented!())]
fn handle() -> tokio::task::JoinHandle<u32> {
    tokio::spawn(async { 1 })
}

type Boxed = Box<dyn Future<Output = u32>>;

#[redis_lock(key = "k", on_error = |_| Box::new(Own))]
fn unpinned() -> Boxed {
    Box::new(Own)
}

trait Work: Future<Output = u32> {}

impl Work for Own {}

#[redis_lock(key = "k", on_error = |_| Own)]
fn by_another_name() -> impl Work {
    Own
}

fn main() {}
