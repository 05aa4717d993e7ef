use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k:{id}", tll = "1s")]
async fn unknown_option(id: u32) -> R<u32> { Ok(id) }

#[redis_lock(key = "k:{idd}")]
async fn unknown_name(id: u32) -> R<u32> { Ok(id) }

#[redis_lock(key = "k:{id}", ttl = "30x")]
fn blocking(id: u32) -> R<u32> { Ok(id) }

#[redis_lock(key = "k:{id}")]
fn no_result(id: u32) -> u32 { id }

#[redis_lock(key = "k", guard = lock, fence = 5)]
async fn with_a_guard() -> R<bool> { Ok(lock.is_held()) }

#[redis_lock(key = "k:{id}", ttl = "30x")]
fn future(id: u32) -> impl Future<Output = R<u32>> { async move { Ok(id) } }

#[redis_lock(key = "k:{id}", on_error = 5)]
fn with_a_handler(id: u32) -> u32 { id }

#[redis_lock(key = "k:{id:?}")]
async fn style(id: u32) -> R<u32> { Ok(id) }

#[redis_lock(key = "k:{price}")]
async fn segment(price: f64) -> R<f64> { Ok(price) }

#[redis_lock(key = "k:{price}", on_error = |_| 1.0)]
fn segment_with_a_handler(price: f64) -> f64 { price }

#[redis_lock(key = "k", on_busy = Ok("x"), wait = "none")]
async fn answer() -> R<u32> { Ok(1) }

#[redis_lock(key = "k", on_busy = Ok("x"), wait = "none")]
fn blocking_answer() -> R<u32> { Ok(1) }

#[redis_lock(key = "k")]
const fn constant(id: u32) -> R<u32> { Ok(id) }

#[redis_lock(key = "k")]
async fn wrong_error(id: u32) -> Result<u32, String> { Ok(id) }

fn main() {}
