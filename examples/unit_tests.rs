//! Unit tests that run in parallel and don't affect each other: `cargo test --example unit_tests`.
//!
//! All tests use the same keys. `scope` gives each test a separate `Locks` in memory. The tests
//! need no server and no order, and a REDIS_URL in the shell does no harm.

use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

/// Ships an order, unless another call ships it already.
#[redis_lock(key = "order:{order}", wait = "none", on_busy = Ok(false))]
pub(crate) async fn ship(order: u64) -> Result<bool, LockError> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(true)
}

/// The same for code without an async runtime.
#[redis_lock(key = "report", wait = "none")]
pub(crate) fn report() -> Result<&'static str, LockError> {
    Ok("written")
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    Locks::in_memory().install()?;
    println!("shipped: {}, report: {}", ship(7).await?, report()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_is_shipped() {
        Locks::in_memory().scope(async { assert_eq!(ship(7).await, Ok(true)) }).await;
    }

    #[tokio::test]
    async fn the_same_order_is_shipped_in_another_test() {
        Locks::in_memory().scope(async { assert_eq!(ship(7).await, Ok(true)) }).await;
    }

    #[tokio::test]
    async fn two_at_once_ship_it_once() {
        let both = async { tokio::join!(ship(7), ship(7)) };
        let (one, other) = Locks::in_memory().scope(both).await;
        assert!(one.unwrap() ^ other.unwrap(), "one of them found it busy");
    }

    #[tokio::test]
    async fn somebody_else_is_at_it() {
        let locks = Locks::in_memory();
        let held = locks.mutex("order:7").acquire().await.unwrap();
        assert_eq!(locks.scope(ship(7)).await, Ok(false));
        held.release().await.unwrap();
        assert_eq!(locks.scope(ship(7)).await, Ok(true));
    }

    #[test]
    fn the_report_is_written() {
        assert_eq!(Locks::in_memory().blocking_scope(report), Ok("written"));
    }

    #[test]
    fn the_report_is_being_written_elsewhere() {
        let locks = Locks::in_memory();
        let _held = locks.mutex("report").blocking_acquire().unwrap();
        assert!(locks.blocking_scope(report).unwrap_err().is_busy());
    }
}
