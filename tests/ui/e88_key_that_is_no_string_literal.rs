use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

const K: &str = "k";

#[redis_lock(key = concat!("a:", "{id}"))]
async fn f(id: u32) -> R<u32> {
    Ok(id)
}

#[redis_lock(key = K)]
async fn g() -> R<()> {
    Ok(())
}

#[redis_lock(key = b"k")]
async fn h() -> R<()> {
    Ok(())
}

#[redis_lock(key = c"k")]
async fn i() -> R<()> {
    Ok(())
}

fn main() {}
