use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "{a}{b}")]
async fn f(a: &str, b: &str) -> R<()> {
    let _ = (a, b);
    Ok(())
}

#[redis_lock(key = "{a}-{b}")]
async fn g(a: &str, b: &str) -> R<()> {
    let _ = (a, b);
    Ok(())
}

const SEPARATOR: &str = ":";

#[redis_lock(key = "{a}{SEPARATOR}{b}")]
async fn h(a: &str, b: &str) -> R<()> {
    let _ = (a, b);
    Ok(())
}

fn main() {}
