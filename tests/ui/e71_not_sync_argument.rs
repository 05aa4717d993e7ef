use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

use std::cell::Cell;

async fn tick() {}

#[redis_lock(key = "k")]
async fn f(cell: &Cell<u32>) -> R<u32> {
    tick().await;
    Ok(cell.get())
}

fn spawn<F: Future + Send>(_: F) {}

fn calls(cell: &Cell<u32>) {
    spawn(f(cell));
}

fn main() {}
