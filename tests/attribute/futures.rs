//! Functions that return a future: the promise holds on every way out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis_locks::redis_lock;

use crate::support::{R, is_locked, is_send, locks, tick, until_free};

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
async fn m01_an_early_return_of_another_future_is_locked() -> R<()> {
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
async fn m01_statements_before_the_block_are_locked() -> R<()> {
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

#[redis_lock(key = "shape:loop:{n}")]
fn out_of_a_loop(n: u32) -> BoxFuture<'static, R<bool>> {
    for round in 0.. {
        if round == n {
            return Box::pin(async move { Ok(is_locked("shape:loop:2")) });
        }
    }
    Box::pin(async move { Ok(false) })
}

#[redis_lock(key = "shape:macro")]
fn block_behind_an_item(n: u32) -> impl Future<Output = R<bool>> {
    fn key() -> &'static str {
        "shape:macro"
    }
    async move { Ok(n == 1 && is_locked(key())) }
}

#[redis_lock(key = "shape:nested")]
fn future_of_a_future() -> BoxFuture<'static, R<BoxFuture<'static, bool>>> {
    Box::pin(async move {
        let locked = is_locked("shape:nested");
        Ok(Box::pin(async move { locked }) as BoxFuture<'static, bool>)
    })
}

#[redis_lock(key = "shape:generic:{n}")]
fn generic<F>(n: u32, work: impl Fn() -> F) -> impl Future<Output = R<bool>>
where
    F: Future<Output = bool>,
{
    let eager = work();
    async move { Ok(is_locked("shape:generic:1") && eager.await && n == 1) }
}

trait Worker: Sync {
    #[redis_lock(key = "shape:default")]
    fn work<'a>(&'a self, log: &'a std::sync::Mutex<Vec<bool>>) -> BoxFuture<'a, R<usize>> {
        log.lock().unwrap().push(is_locked("shape:default"));
        Box::pin(async move { Ok(log.lock().unwrap().len()) })
    }
}

impl Worker for () {}

#[redis_lock(key = "shape:handle")]
fn result_of_a_handle() -> R<tokio::task::JoinHandle<bool>> {
    let locked = is_locked("shape:handle");
    Ok(tokio::spawn(async move { locked }))
}

#[tokio::test]
async fn m01_further_shapes_run_under_the_lock() -> R<()> {
    locks();
    assert!(out_of_a_loop(2).await?);
    assert!(block_behind_an_item(1).await?);
    assert!(future_of_a_future().await?.await);
    assert!(generic(1, || async { is_locked("shape:generic:1") }).await?);
    let log = std::sync::Mutex::new(vec![]);
    assert_eq!(().work(&log).await?, 1);
    assert_eq!(log.into_inner().unwrap(), [true]);
    assert!(result_of_a_handle()?.await.unwrap());
    Ok(())
}
