//! What a second call does: `queue`, `newest`, `replay`, `share` and `same`.

use std::cell::RefCell;
use std::sync::mpsc;
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

thread_local!(static ENDED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) });

/// Says when the body that owns it is dropped.
struct Ends(&'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        ENDED.with_borrow_mut(|ended| ended.push(self.0));
    }
}

#[redis_lock(key = "newest:{id}", newest)]
async fn previews(id: u32, name: &'static str, go: &Notify) -> R<&'static str> {
    let _ends = Ends(name);
    go.notified().await;
    Ok(name)
}

#[redis_lock(key = "newest:{id}", newest, on_superseded = Ok(format!("{name} was superseded")))]
async fn answers(id: u32, name: &str, go: &Notify) -> R<String> {
    go.notified().await;
    Ok(name.into())
}

#[redis_lock(key = "newest:{id}", newest, on_superseded = "superseded", on_error = |_| "failed")]
async fn with_a_handler(id: u32, go: &Notify) -> &'static str {
    go.notified().await;
    "ran"
}

#[redis_lock(key = "newest:{id}", newest, guard = lock, on_superseded = Ok(false))]
fn blocking(id: u32, started: &mpsc::Sender<()>) -> R<bool> {
    started.send(()).unwrap();
    while !lock.is_superseded() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// Until this call holds the key.
async fn holds(key: &str) {
    let looks = async {
        while locks().status(key).await.unwrap().holders.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.expect("it holds the lock");
}

#[tokio::test]
async fn a_newer_call_begins_when_the_older_body_has_ended() -> R<()> {
    let _installed = locks();
    let (never, go) = (Notify::new(), Notify::new());
    go.notify_one();
    let (older, newer) = tokio::join!(previews(1, "older", &never), async {
        holds("newest:1").await;
        previews(1, "newer", &go).await
    });
    assert!(matches!(older, Err(LockError::Superseded { .. })), "{older:?}");
    assert_eq!(newer?, "newer");
    ENDED.with_borrow(|ended| assert_eq!(*ended, ["older", "newer"]));
    Ok(())
}

#[tokio::test]
async fn what_a_superseded_call_returns_may_be_said() -> R<()> {
    let _installed = locks();
    let (never, go) = (Notify::new(), Notify::new());
    go.notify_one();
    let (older, newer) = tokio::join!(answers(2, "older", &never), async {
        holds("newest:2").await;
        answers(2, "newer", &go).await
    });
    assert_eq!((older?, newer?), ("older was superseded".into(), "newer".to_owned()));
    go.notify_one();
    let (older, newer) = tokio::join!(with_a_handler(3, &never), async {
        holds("newest:3").await;
        with_a_handler(3, &go).await
    });
    assert_eq!((older, newer), ("superseded", "ran"));
    Ok(())
}

#[test]
fn a_blocking_body_ends_when_it_sees_that_it_is_superseded() {
    let _installed = locks();
    let (started, starts) = mpsc::channel();
    let older = std::thread::spawn({
        let started = started.clone();
        move || blocking(4, &started)
    });
    starts.recv().unwrap();
    let newer = std::thread::spawn(move || blocking(4, &started));
    assert_eq!(older.join().unwrap(), Ok(true), "its own result came first");
    starts.recv().unwrap();
    let last = locks().mutex("newest:4").newest().blocking_acquire().unwrap();
    assert_eq!(newer.join().unwrap(), Ok(true));
    last.blocking_release().unwrap();
}

#[cfg(feature = "serde")]
mod values {
    use std::cell::Cell;

    use redis_locks::{LockError, redis_lock};
    use serde::{Deserialize, Serialize};
    use tokio::sync::Notify;

    use super::holds;
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

    #[redis_lock(key = "share:{id}", share)]
    async fn shares(id: u32, go: &Notify) -> R<Receipt> {
        go.notified().await;
        Ok(Receipt { run: runs() })
    }

    #[tokio::test]
    async fn a_call_that_waits_gets_the_value_of_the_one_that_runs() -> R<()> {
        let _installed = locks();
        let go = Notify::new();
        let (first, second, ()) = tokio::join!(shares(1, &go), shares(1, &go), async {
            holds("share:1").await;
            go.notify_one();
        });
        assert_eq!(first?, second?);
        Ok(())
    }

    #[redis_lock(key = "same:{id}", once = "24h", replay, same = payload)]
    async fn pays(id: u32, payload: String) -> R<(u32, String)> {
        Ok((runs(), payload))
    }

    #[tokio::test]
    async fn another_payload_under_the_same_key_is_refused() -> R<()> {
        let _installed = locks();
        let first = pays(1, "995 cents".into()).await?;
        assert_eq!(pays(1, "995 cents".into()).await?, first);
        let other = pays(1, "1 cent".into()).await;
        assert!(matches!(other, Err(LockError::Mismatch { .. })), "{other:?}");
        Ok(())
    }
}
