use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key("k:{s}", s = s.into_boxed_str()))]
async fn f(s: String) -> R<String> {
    Ok(s)
}

fn main() {}
