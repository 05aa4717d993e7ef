//! Functions that return a future: the promise holds on every way out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis_locks::redis_lock;

use crate::scenery::{R, is_locked, is_send, locks, tick, until_free};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How many run at once, at most.
#[derive(Default)]
struct Gauge {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Gauge {
    async fn run(&self) -> R<u32> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        tick().await;
        tick().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(inside)
    }
}

#[redis_lock(key = "early:{n}")]
fn early(n: u32, gauge: Arc<Gauge>) -> Pin<Box<dyn Future<Output = R<u32>> + Send>> {
    if n == 1 {
        return Box::pin(async move { gauge.run().await });
    }
    Box::pin(async move { gauge.run().await })
}

macro_rules! leave {
    ($($body:tt)*) => {
        return Box::pin(async move { $($body)* })
    };
}

#[redis_lock(key = "hidden:{n}")]
fn hidden(n: u32, gauge: Arc<Gauge>) -> Pin<Box<dyn Future<Output = R<u32>> + Send>> {
    if n == 1 {
        leave!(gauge.run().await);
    }
    Box::pin(async { Ok(0) })
}

#[redis_lock(key = "helper:{n}")]
fn from_elsewhere(n: u32, gauge: &Gauge) -> BoxFuture<'_, R<u32>> {
    if n == 1 {
        return Box::pin(gauge.run());
    }
    Box::pin(async move { Ok(0) })
}

#[tokio::test]
async fn an_early_return_of_another_future_is_locked() -> R<()> {
    locks();
    let gauge = Arc::new(Gauge::default());
    let (a, b, c) = tokio::join!(
        early(1, Arc::clone(&gauge)),
        early(1, Arc::clone(&gauge)),
        is_send(early(1, Arc::clone(&gauge)))
    );
    assert_eq!((a?, b?, c?), (1, 1, 1));
    let (a, b) = tokio::join!(hidden(1, Arc::clone(&gauge)), hidden(1, Arc::clone(&gauge)));
    assert_eq!((a?, b?), (1, 1));
    let (a, b) = tokio::join!(from_elsewhere(1, &gauge), from_elsewhere(1, &gauge));
    assert_eq!((a?, b?), (1, 1));
    assert_eq!(gauge.most.load(Ordering::SeqCst), 1);
    until_free("early:1").await;
    until_free("hidden:1").await;
    Ok(())
}

#[redis_lock(key = "before:{n}")]
fn before(n: u32, log: &mut Vec<bool>) -> impl Future<Output = R<usize>> {
    let key = format!("before:{n}");
    log.push(is_locked(&key));
    async move {
        log.push(is_locked(&key));
        Ok(log.len())
    }
}

#[redis_lock(key = "before:path:{n}")]
fn by_path(n: u32) -> Pin<::std::boxed::Box<dyn Future<Output = R<bool>>>> {
    let locked = is_locked(&format!("before:path:{n}"));
    ::std::boxed::Box::pin(async move { Ok(locked) })
}

#[tokio::test]
async fn statements_before_the_block_are_locked() -> R<()> {
    locks();
    let mut log = Vec::new();
    let future = before(1, &mut log);
    assert_eq!(future.await?, 2);
    assert_eq!(log, [true, true]);
    assert!(by_path(1).await?);
    until_free("before:1").await;
    until_free("before:path:1").await;
    Ok(())
}

#[redis_lock(key = "lazy", on_error = |_| 0)]
fn lazy(count: &AtomicU32) -> BoxFuture<'_, u32> {
    count.fetch_add(1, Ordering::SeqCst);
    Box::pin(async move { count.load(Ordering::SeqCst) })
}

#[tokio::test]
async fn nothing_runs_before_the_first_poll() {
    locks();
    let count = AtomicU32::new(0);
    let future = lazy(&count);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert_eq!(future.await, 1);
    until_free("lazy").await;
}
