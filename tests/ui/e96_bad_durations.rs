use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", ttl = "30x")]
async fn unit() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "0s")]
async fn zero() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "50ms")]
async fn short() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "1000d")]
async fn long() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "")]
async fn empty() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = 30)]
async fn bare() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "30")]
async fn bare_text() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = "-5s")]
async fn negative() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = -5)]
async fn negative_number() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = "1.5s")]
async fn fraction() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_hold = "30 seconds")]
async fn word() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", max_hold = "30s1m")]
async fn order() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", min_hold = 30s)]
async fn suffix() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", wait = "0s")]
async fn wait_zero() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", repair_orphan = 1.5)]
async fn float() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", ttl = "x".len())]
async fn wrong_type() -> R<()> {
    Ok(())
}

fn main() {}
