//! The same mutex from `rslock`, on the same three nodes, both ways.

use std::time::Duration;

use redis_lock_core::{LockError, Locks, LockRequest};
use rslock::{Lock, LockManager};
use testbed::{Server, eventually};

const PATIENCE: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(30);
/// Where our mutex `job` is.
const KEY: &str = "lock:job";

/// Three nodes that vote at once, and both libraries on them.
struct Shared {
    servers: Vec<Server>,
    locks: Locks,
    theirs: LockManager,
}

impl Shared {
    async fn start() -> Self {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        let builder = Locks::builder().quorum(&urls).rejoin(Duration::ZERO).ttl(TTL);
        let locks = builder.connect().await.expect("a majority can be reached");
        Self { servers, locks, theirs: LockManager::new(urls) }
    }

    fn job(&self) -> LockRequest {
        self.locks.mutex("job")
    }

    /// They try a few times.
    async fn they_try(&self) -> Option<Lock> {
        self.theirs.lock(KEY, TTL).await.ok()
    }

    fn assert_clean(&self) {
        eventually(PATIENCE, "every node is clean", || {
            self.servers.iter().all(|server| server.keys().iter().all(|key| key.contains(":f")))
        });
    }
}

#[tokio::test]
async fn rslock_and_a_quorum_exclude_each_other() -> Result<(), LockError> {
    let shared = Shared::start().await;
    for down in [false, true] {
        if down {
            shared.servers[2].kill9();
        }
        let lock = shared.they_try().await.expect("it is free");
        assert!(shared.job().try_acquire().await?.is_none());
        let error = shared.job().wait(Duration::from_millis(300)).acquire().await.map(drop);
        assert!(error.is_err_and(|error| error.is_busy()));
        lock.release().await;

        let guard = shared.job().wait(PATIENCE).acquire().await?;
        assert!(shared.they_try().await.is_none());
        guard.verify().await?;
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_a_quorum_wait_for_each_other() -> Result<(), LockError> {
    let shared = Shared::start().await;
    let lock = shared.they_try().await.expect("it is free");
    // Their release sends no message, so our waiter looks by itself.
    let request = shared.job().wait(PATIENCE);
    let waiting = tokio::spawn(async move { request.acquire().await });
    let is_queued = |server: &Server| server.exists("lock:{lock:job}:~q");
    eventually(PATIENCE, "ours is queued", || shared.servers.iter().all(is_queued));
    lock.release().await;
    let guard = waiting.await.expect("it does not panic")?;

    let manager = shared.theirs.clone();
    let waiting = tokio::spawn(async move { manager.acquire(KEY, TTL).await });
    let monitor = shared.servers[0].monitor();
    eventually(PATIENCE, "theirs tries in vain", || monitor.count("\"NX\"") > 0);
    guard.release().await?;
    let theirs = waiting.await.expect("it does not panic").expect("it gets it");
    assert!(shared.job().try_acquire().await?.is_none());
    theirs.release().await;
    shared.assert_clean();
    Ok(())
}
