//! E69-E75: futures between threads, cancellation, panics, temporaries.

use std::cell::Cell;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use redis_locks::{LockError, redis_lock};

use crate::support::{Log, R, Watch, is_locked, is_send, locks, tick, until_free};

#[redis_lock(key = "e69:{n}")]
async fn e69(n: u32) -> R<u32> {
    tick().await;
    Ok(n)
}

#[redis_lock(key("e69:{}", key().await), on_error = |_| Ok(0), guard = lock)]
async fn e69_all_options(name: String, shared: &Mutex<u32>) -> R<usize> {
    tick().await;
    Ok(name.len() + lock.key().len() + *shared.lock().unwrap() as usize)
}

async fn key() -> String {
    tick().await;
    "x".into()
}

#[tokio::test]
async fn e69_the_future_stays_send() -> R<()> {
    locks();
    assert_eq!(tokio::spawn(e69(1)).await.unwrap()?, 1);
    static SHARED: Mutex<u32> = Mutex::new(1);
    assert_eq!(tokio::spawn(e69_all_options("ab".into(), &SHARED)).await.unwrap()?, 8);
    Ok(())
}

#[redis_lock(key("k:{t}", t = checked(id.get()).await?))]
async fn e69_cell(id: Cell<u32>) -> R<u32> {
    Ok(id.get())
}

#[redis_lock(key("k:{t}", t = checked(id.get()).await?), on_error = Err)]
async fn e69_cell_with_a_handler(id: Cell<u32>) -> R<u32> {
    Ok(id.get())
}

#[redis_lock(keys = vec![format!("k:{}", id.get())], on_error = |_| 0)]
async fn e69_cell_in_a_macro(id: Cell<u32>) -> u32 {
    id.get()
}

async fn checked(id: u32) -> R<u32> {
    tick().await;
    if id > 0 { Ok(id) } else { Err(LockError::NotConfigured) }
}

#[tokio::test]
async fn e69_arguments_that_are_not_sync_stay_out_of_the_wait_for_the_key() -> R<()> {
    locks();
    assert_eq!(tokio::spawn(e69_cell(Cell::new(1))).await.unwrap()?, 1);
    assert!(matches!(e69_cell(Cell::new(0)).await, Err(LockError::NotConfigured)));
    assert_eq!(tokio::spawn(e69_cell_with_a_handler(Cell::new(1))).await.unwrap()?, 1);
    assert!(e69_cell_with_a_handler(Cell::new(0)).await.is_err());
    assert_eq!(tokio::spawn(e69_cell_in_a_macro(Cell::new(1))).await.unwrap(), 1);
    Ok(())
}

#[redis_lock(key = "k")]
#[expect(clippy::await_holding_lock)]
async fn e70(m: &Mutex<u32>) -> R<u32> {
    let guard = m.lock().unwrap();
    tick().await;
    Ok(*guard)
}

#[tokio::test]
async fn e70_a_body_that_is_not_send_compiles() -> R<()> {
    locks();
    assert_eq!(e70(&Mutex::new(1)).await?, 1);
    Ok(())
}

#[redis_lock(key = "k")]
async fn e71(cell: &Cell<u32>) -> R<u32> {
    tick().await;
    Ok(cell.get())
}

#[tokio::test]
async fn e71_arguments_that_are_not_sync_compile() -> R<()> {
    locks();
    assert_eq!(e71(&Cell::new(2)).await?, 2);
    Ok(())
}

#[redis_lock(key = "e72")]
async fn e72(log: Log) -> R<()> {
    log.add("body");
    Ok(())
}

#[tokio::test]
async fn e72_dropped_before_the_first_poll() {
    locks();
    let log = Log::default();
    drop(is_send(e72(log.clone())));
    assert!(!is_locked("e72") && log.lines().is_empty());
    #[expect(unused_must_use)]
    {
        e72(log.clone());
    }
    assert!(log.lines().is_empty());
}

#[redis_lock(key = "e73")]
async fn e73(_a: Watch, log: Log) -> R<()> {
    let _local = log.watch("local", "e73");
    pending::<()>().await;
    Ok(())
}

#[tokio::test]
async fn e73_dropped_while_the_body_waits() {
    locks();
    let log = Log::default();
    {
        let mut call = pin!(e73(log.watch("argument", "e73"), log.clone()));
        let mut context = Context::from_waker(Waker::noop());
        while !is_locked("e73") {
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    until_free("e73").await;
    assert_eq!(log.lines(), ["local locked", "argument locked"]);
}

#[redis_lock(key = "e74")]
async fn e74(_a: Watch) -> R<()> {
    tick().await;
    panic!("boom")
}

#[redis_lock(key = "e74s")]
fn e74_sync(_a: Watch) -> R<()> {
    panic!("boom")
}

#[tokio::test]
async fn e74_panic_in_the_body_releases_after_the_arguments() {
    let log = Log::default();
    let call = e74(log.watch("argument", "e74"));
    assert!(tokio::spawn(call).await.unwrap_err().is_panic());
    until_free("e74").await;
    let argument = log.watch("argument", "e74s");
    assert!(catch_unwind(AssertUnwindSafe(|| e74_sync(argument))).is_err());
    until_free("e74s").await;
    assert_eq!(log.lines(), ["argument locked", "argument locked"]);
}

#[redis_lock(key = "k")]
async fn e75(m: &Mutex<u32>) -> R<u32> {
    tick().await;
    Ok(*m.lock().unwrap())
}

#[redis_lock(key = "k")]
async fn e75_owned(m: Arc<Mutex<u32>>) -> R<u32> {
    Ok(*m.lock().unwrap())
}

#[redis_lock(key = "k")]
fn e75_sync(m: Arc<Mutex<u32>>) -> R<u32> {
    Ok(*m.lock().unwrap())
}

#[tokio::test]
async fn e75_temporaries_in_the_tail_expression() -> R<()> {
    locks();
    let m = Arc::new(Mutex::new(1));
    let sum = is_send(e75(&m)).await? + is_send(e75_owned(m.clone())).await? + e75_sync(m.clone())?;
    assert_eq!(sum, 3);
    Ok(())
}
