use redis_locks::{LockError, Locks, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
trait Jobs { fn run(&self); }

#[redis_lock(key = "k")]
enum Job { Nightly }

#[redis_lock(key = "k", wait = 0)]
async fn no_wait() -> R<()> { Ok(()) }

#[redis_lock(key = "k", ttl = 0)]
async fn no_ttl() -> R<()> { Ok(()) }

#[redis_lock(key = "k", ttl = "1h30")]
async fn half() -> R<()> { Ok(()) }

#[redis_lock(key = "k", ttl = "5ms3")]
async fn smallest() -> R<()> { Ok(()) }

#[redis_lock(key = "k", renew = no, fair = off)]
async fn words() -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = "redis://localhost")]
async fn url() -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = Locks::in_memory())]
async fn in_memory() -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = &redis_locks::Locks::open("redis://localhost")?)]
async fn opened() -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = Locks::connect("redis://localhost").await?)]
async fn connected() -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = Locks::builder().in_memory().open()?)]
fn built() -> R<()> { Ok(()) }

#[redis_lock(key = "path:{Path.0}")]
async fn pattern(path: (u64, u64)) -> R<()> { Ok(()) }

#[redis_lock(key = "k", guard = lock)]
async fn released() -> R<()> { lock.release().await }

#[redis_lock(key = "k", guard = lock)]
fn detached() -> R<()> { let _ = lock.detach(); Ok(()) }

#[redis_lock(key = "k", read, fence = token)]
async fn fenced_readers() -> R<u64> { Ok(token) }

#[redis_lock(key = "k", fence = token, permits = 4)]
fn fenced_permits() -> R<u64> { Ok(token) }

fn closures() {
    let _ = #[redis_lock(key = "k")] || 5;
    let _ = #[redis_lock(key = "k")] async move { 5 };
}

fn main() {}
