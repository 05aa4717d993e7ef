#![deny(deprecated)]
use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "order:{{id}}")]
async fn doubled(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(key = "order:#order.id")]
async fn spel(order: &(u64, u64)) -> R<u64> {
    Ok(order.0)
}

#[redis_lock(key = "order:<order_id>")]
fn angled(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(key = "order:${id}")]
async fn dollar(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(keys = ["order:$id", "stock:{id}"])]
async fn listed(id: u64) -> R<u64> {
    Ok(id)
}

// Rightful constants.
#[redis_lock(key = "{{orders}}:import#all<2>$")]
async fn constant(id: u64) -> R<u64> {
    Ok(id)
}

#[redis_lock(key = "order:{{id}}")]
async fn nothing_to_mean() -> R<()> {
    Ok(())
}

#[redis_lock(key = "order#{id}")]
async fn separated(id: u64) -> R<u64> {
    Ok(id)
}

#[allow(deprecated)]
#[redis_lock(key = "order:{{id}}")]
async fn on_purpose(id: u64) -> R<u64> {
    Ok(id)
}

fn main() {}
