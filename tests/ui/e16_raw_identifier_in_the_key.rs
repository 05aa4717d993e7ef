use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{r#type}")]
async fn f(r#type: u32) -> R<u32> {
    Ok(r#type)
}

fn main() {}
