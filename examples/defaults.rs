//! Options for all functions of an `impl`: `cargo run --example defaults`.
//!
//! The `Locks`, the lease, the wait and the first part of the keys are set once, above the block. A
//! function sets only what differs.

use redis_locks::{LockError, Locks, redis_lock, redis_lock_defaults};

struct Orders {
    locks: Locks,
}

#[redis_lock_defaults(via = self.locks, ttl = "10s", wait = "2s", prefix = "order:")]
impl Orders {
    #[redis_lock(key = "{id}", request = order_lock)]
    async fn charge(&self, id: u64, cents: u64) -> Result<u64, LockError> {
        Ok(id + cents)
    }

    #[redis_lock(key = "{id}")]
    async fn cancel(&self, id: u64) -> Result<(), LockError> {
        println!("order {id} is cancelled");
        Ok(())
    }

    #[redis_lock(keys = ["{from}", "{to}"])]
    async fn merge(&self, from: u64, to: u64) -> Result<(), LockError> {
        println!("order {from} is part of order {to}");
        Ok(())
    }

    /// Exports take longer, and a second one is refused at once.
    #[redis_lock(key = "export", ttl = "1m", wait = "none", on_busy = Ok(false))]
    async fn export(&self) -> Result<bool, LockError> {
        Ok(true)
    }
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let orders = Orders { locks: Locks::in_memory() };
    // The same lock as that of `charge`, from outside.
    let held = orders.order_lock(7)?.acquire().await?;
    println!("{} is locked", held.key());
    let busy = orders.charge(7, 100).await;
    println!("charge: {}", busy.is_err_and(|error| error.is_busy()));
    held.release().await?;

    orders.charge(7, 100).await?;
    orders.cancel(7).await?;
    orders.merge(7, 8).await?;
    println!("exported: {}", orders.export().await?);
    Ok(())
}
