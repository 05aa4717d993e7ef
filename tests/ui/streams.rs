use std::pin::Pin;

use redis_locks::{LockError, redis_lock};

trait Stream {
    type Item;
}

impl Stream for u32 {
    type Item = u32;
}

type BoxStream<'a, T> = Pin<Box<dyn Stream<Item = T> + Send + 'a>>;

struct Sse<S>(S);

#[redis_lock(key = "k")]
async fn in_a_result() -> Result<impl Stream<Item = u32>, LockError> {
    Ok(1)
}

#[redis_lock(key = "k")]
fn blocking() -> Result<impl Stream<Item = u32>, LockError> {
    Ok(1)
}

#[redis_lock(key = "k", on_error = |_| 0)]
fn bare() -> impl Stream<Item = u32> {
    1
}

#[redis_lock(key = "k")]
async fn wrapped() -> Result<Sse<impl Stream<Item = u32>>, LockError> {
    Ok(Sse(1))
}

#[redis_lock(key = "k")]
async fn boxed() -> Result<Pin<Box<dyn Stream<Item = u32> + Send>>, LockError> {
    Ok(Box::pin(1))
}

#[redis_lock(key = "k")]
async fn by_name() -> Result<(u32, Option<BoxStream<'static, u32>>), LockError> {
    Ok((1, None))
}

#[redis_lock(key = "k")]
fn later() -> impl Future<Output = Result<impl Stream<Item = u32>, LockError>> {
    async move { Ok(1) }
}

// Iterators are computed where they are read, as their users know.
#[redis_lock(key = "k")]
async fn iterator() -> Result<impl Iterator<Item = u32>, LockError> {
    Ok([1].into_iter())
}

fn main() {}
