use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

use std::sync::Mutex;

async fn tick() {}

#[redis_lock(key = "k")]
async fn f(m: &'static Mutex<u32>) -> R<u32> {
    let held = m.lock().unwrap();
    tick().await;
    Ok(*held)
}

fn spawn<F: Future + Send>(_: F) {}

fn calls(m: &'static Mutex<u32>) {
    spawn(f(m));
}

fn main() {}
