//! What `on_busy` decides, and what it does not.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

#[redis_lock(key = "job", via = locks, on_busy = Ok(false))]
async fn job(locks: &Locks) -> Result<bool, LockError> {
    Ok(true)
}

#[tokio::test]
async fn h2_a_call_without_a_limit_queues_whatever_it_says_about_busy_locks()
-> Result<(), LockError> {
    let locks = Locks::in_memory();
    let guard = locks.mutex("job").acquire().await?;
    {
        let mut call = pin!(job(&locks));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(matches!(call.as_mut().poll(context), Poll::Pending));
        guard.release().await?;
        assert!(call.await?);
    }
    // The limit may be the manager's, which no compiler knows.
    let locks = Locks::builder().in_memory().wait(Duration::from_millis(1)).open()?;
    let _guard = locks.mutex("job").acquire().await?;
    assert!(!job(&locks).await?);
    Ok(())
}
