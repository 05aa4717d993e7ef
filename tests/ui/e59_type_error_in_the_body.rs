use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f() -> R<String> {
    Ok("")
}

#[redis_lock(key = "k")]
fn g(n: u32) -> R<String> {
    if n == 1 {
        return Ok(n);
    }
    Ok(String::new() + n)
}

fn main() {}
