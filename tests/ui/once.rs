use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", once = "24h", ttl = "never")]
async fn never_expires() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", once = "24h", read)]
async fn shared() -> R<()> {
    Ok(())
}

#[redis_lock(keys = ["j", "k"], once = "24h")]
async fn several() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", once = "24h", reentrant)]
async fn joins() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", linger = "2s", once = "24h")]
fn lingers() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", once = "1m", min_hold = "2m")]
fn kept_for_longer() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", on_done = Ok(()))]
fn done_without_once() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", once = "0s")]
fn no_time() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", once = 24)]
fn no_unit() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", run_once = "24h")]
fn another_word() -> R<()> {
    Ok(())
}

#[redis_lock(key = "k", once = "24h", if_done = Ok(()))]
fn another_answer() -> R<()> {
    Ok(())
}

fn main() {}
