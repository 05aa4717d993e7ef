#![deny(deprecated)]
use redis_locks::{Guard, LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "order:id")]
async fn forgotten(id: u64) -> R<u64> { Ok(id) }

#[redis_lock(key = "id")]
fn nothing_else(id: u64) -> R<u64> { Ok(id) }

#[redis_lock(keys = ["acct:from", "acct:{to}"])]
async fn listed(from: u64, to: u64) -> R<u64> { Ok(from + to) }

#[redis_lock(key = "order/order_id/pay")]
async fn in_the_middle(order_id: u64) -> R<u64> { Ok(order_id) }

#[redis_lock(key = "k:{id}", guard = id)]
async fn guard_hides(id: u64) -> R<bool> { Ok(id.is_held()) }

#[redis_lock(key = "k:{id}", fence = id)]
fn fence_hides(id: u64) -> R<u64> { Ok(id) }

#[redis_lock(key = "k:{id}", guard = id)]
fn future_hides(id: u64) -> impl Future<Output = R<bool>> { async move { Ok(id.is_held()) } }

// Rightful constants: what stands first says what is locked.
#[redis_lock(key = "report:nightly")]
async fn noun(report: u64) -> R<u64> { Ok(report) }

#[allow(deprecated)]
#[redis_lock(key = "order:id", guard = id)]
async fn on_purpose(id: u64) -> R<bool> { Ok(id.is_held()) }

fn held(guard: &Guard) -> bool { guard.is_held() }

fn main() { let _ = held; }
