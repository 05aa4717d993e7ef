//! What a second call does: `queue` and `replay`.

use std::time::Duration;

use redis_locks::{LockError, redis_lock};
use tokio::sync::Notify;

use crate::support::{R, locks};

const PATIENCE: Duration = Duration::from_secs(20);

/// Until as many calls as this wait at the server.
async fn waits(key: &str, count: usize) {
    let looks = async {
        while locks().status(key).await.unwrap().waiters.len() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.expect("they wait");
}

#[redis_lock(key = "second:{id}", queue = 1, wait = "forever", on_busy = Ok("refused"))]
async fn coalesces(id: u32, go: &Notify) -> R<&'static str> {
    go.notified().await;
    Ok("ran")
}

#[tokio::test]
async fn of_calls_with_queue_one_runs_one_waits_and_the_next_is_refused() -> R<()> {
    let _installed = locks();
    let go = Notify::new();
    let (first, second, third) = tokio::join!(coalesces(1, &go), coalesces(1, &go), async {
        waits("second:1", 1).await;
        let refused = coalesces(1, &go).await;
        go.notify_one();
        waits("second:1", 0).await;
        go.notify_one();
        refused
    });
    assert_eq!((first?, second?, third?), ("ran", "ran", "refused"));
    Ok(())
}

#[redis_lock(key = "second:{id}", queue = most)]
fn computed(id: u32, most: usize) -> R<usize> {
    Ok(most)
}

#[test]
fn the_number_of_places_may_be_computed() -> R<()> {
    let _installed = locks();
    assert_eq!(computed(2, 3)?, 3);
    assert!(matches!(computed(2, 0), Err(LockError::InvalidConfig { .. })));
    Ok(())
}

#[cfg(feature = "serde")]
mod values {
    use std::cell::Cell;

    use redis_locks::redis_lock;
    use serde::{Deserialize, Serialize};

    use crate::support::{R, locks};

    thread_local!(static RUNS: Cell<u32> = const { Cell::new(0) });

    fn runs() -> u32 {
        RUNS.set(RUNS.get() + 1);
        RUNS.get()
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Receipt {
        run: u32,
    }

    #[redis_lock(key = "replay:{id}", once = "24h", replay)]
    async fn charge(id: u32) -> R<Receipt> {
        Ok(Receipt { run: runs() })
    }

    #[redis_lock(key = "replay:{id}", once = "24h", replay)]
    fn blocking_charge(id: u32) -> R<Receipt> {
        Ok(Receipt { run: runs() })
    }

    #[redis_lock(key = "replay:{id}", once = "24h", replay, on_error = |_| 0)]
    async fn with_a_handler(id: u32) -> u32 {
        runs()
    }

    #[redis_lock(key = "replay:{id}", once = "24h", replay, on_error = |_| 0)]
    fn blocking_with_a_handler(id: u32) -> u32 {
        runs()
    }

    #[redis_lock(key = "replay:{id}", once = "24h", replay, wait = "none", on_busy = Ok(0))]
    fn answers_busy(id: u32) -> R<u32> {
        Ok(runs())
    }

    #[tokio::test]
    async fn a_later_call_returns_the_value_and_does_not_run() -> R<()> {
        let _installed = locks();
        let first = charge(1).await?;
        assert_eq!(charge(1).await?, first);
        assert_eq!(blocking_charge(1)?, first, "one key, one type");
        assert_ne!(charge(2).await?, first);
        let run = with_a_handler(3).await;
        assert_eq!((with_a_handler(3).await, blocking_with_a_handler(3)), (run, run));
        let run = blocking_with_a_handler(4);
        assert_eq!(with_a_handler(4).await, run);
        let run = answers_busy(5)?;
        assert_eq!((answers_busy(5)?, answers_busy(5)?), (run, run));
        Ok(())
    }
}
