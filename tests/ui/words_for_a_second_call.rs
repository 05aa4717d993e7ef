use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", singleflight = true)]
async fn singleflight() -> R<()> { Ok(()) }

#[redis_lock(key = "k", debounce = true)]
async fn debounce() -> R<()> { Ok(()) }

#[redis_lock(key = "k", coalesce = true)]
async fn coalesce() -> R<()> { Ok(()) }

#[redis_lock(key = "k", latest = true)]
async fn latest() -> R<()> { Ok(()) }

#[redis_lock(key = "k", cancel_previous = true)]
async fn cancel_previous() -> R<()> { Ok(()) }

#[redis_lock(key = "k", replace = true)]
async fn replace() -> R<()> { Ok(()) }

#[redis_lock(key = "k", dedupe = true)]
async fn dedupe() -> R<()> { Ok(()) }

#[redis_lock(key = "k", memoize = true)]
async fn memoize() -> R<()> { Ok(()) }

#[redis_lock(key = "k", idempotent = true)]
async fn idempotent() -> R<()> { Ok(()) }

#[redis_lock(key = "k", unique = true)]
async fn unique() -> R<()> { Ok(()) }

#[redis_lock(key = "k", concurrency = true)]
async fn concurrency() -> R<()> { Ok(()) }

#[redis_lock(key = "k", throttle = true)]
async fn throttle() -> R<()> { Ok(()) }

#[redis_lock(key = "k", idempotency_key = true)]
async fn idempotency_key() -> R<()> { Ok(()) }

#[redis_lock(key = "k", max_queue = true)]
async fn max_queue() -> R<()> { Ok(()) }

#[redis_lock(key = "k", supersede = true)]
async fn supersede() -> R<()> { Ok(()) }

#[redis_lock(key = "k", cached = true)]
async fn cached() -> R<()> { Ok(()) }

#[redis_lock(key = "k", payload = true)]
async fn payload() -> R<()> { Ok(()) }

#[redis_lock(key = "k", slot_number = true)]
async fn slot_number() -> R<()> { Ok(()) }

fn main() {}
