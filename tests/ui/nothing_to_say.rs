// compiles with a warning
use redis_locks::{LockError, Locks, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", renew = on, fair = off)]
async fn words_that_are_arguments(on: bool, off: bool) -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = locks)]
async fn argument(locks: &Locks) -> R<()> { Ok(()) }

fn shared() -> &'static Locks { todo!() }

#[redis_lock(key = "k", via = shared())]
async fn function() -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = shared(), guard = lock)]
async fn another_lock() -> R<bool> {
    let held = lock.is_held();
    let lock = shared().mutex("other").acquire().await?;
    lock.release().await?;
    Ok(held)
}

#[redis_lock(key = "k", write, fence = token)]
async fn fenced_writer() -> R<u64> { Ok(token) }

#[redis_lock(key("k:{}", if id == 0 { return Err(LockError::NotConfigured) } else { id }))]
async fn leaves_with_an_error(id: u64) -> R<u64> { Ok(id) }

fn main() { let unused = 5; }
