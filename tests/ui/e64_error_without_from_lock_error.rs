use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

enum AppError {
    Io,
}

#[redis_lock(key = "k")]
async fn f() -> Result<u32, AppError> {
    Err(AppError::Io)
}

#[redis_lock(key = "k")]
fn g<T, E>(n: T) -> Result<T, E> {
    Ok(n)
}

fn main() {}
