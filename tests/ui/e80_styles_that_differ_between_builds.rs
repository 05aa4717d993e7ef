use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{id:?}")]
async fn debug(id: u32) -> R<u32> {
    Ok(id)
}

#[redis_lock(key = "k:{id:p}")]
async fn pointer(id: &u32) -> R<u32> {
    Ok(*id)
}

const PLACE: &str = "here";

#[redis_lock(key = "k:{PLACE:?}:{id}")]
async fn constant(id: u32) -> R<u32> {
    Ok(id)
}

#[redis_lock(key = "k:{name:.3}")]
async fn cut(name: &str) -> R<usize> {
    Ok(name.len())
}

#[redis_lock(key = "k:{name:0>8}")]
async fn filled(name: &str) -> R<usize> {
    Ok(name.len())
}

#[redis_lock(key = "k:{width:width$}")]
async fn width(width: usize) -> R<usize> {
    Ok(width)
}

fn main() {}
