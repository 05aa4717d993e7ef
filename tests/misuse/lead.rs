//! `LockRequest::lead`: one body at a time, and again after a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis_locks::{BackendErrorKind, LockError, LockRequest, Locks};
use testbed::{PATIENCE, Proxy, Server};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::arena::{Arena, ms};

/// Contends in the background; reports who leads, as `(name, term)`.
fn candidate(locks: &Locks, name: &'static str, led: mpsc::UnboundedSender<(&'static str, u32)>) {
    let request = locks.mutex("leader").ttl(Duration::from_secs(30));
    let mut term = 0;
    tokio::spawn(request.lead(async move |_| {
        term += 1;
        led.send((name, term)).unwrap();
        std::future::pending::<()>().await;
    }));
}

async fn next<T>(leaders: &mut mpsc::UnboundedReceiver<T>) -> T {
    timeout(PATIENCE, leaders.recv())
        .await
        .expect("a candidate leads")
        .expect("a candidate is left")
}

#[test]
fn a_leader_that_is_deposed_contends_again() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in Arena::each() {
        runtime.block_on(async {
            let (led, mut leaders) = mpsc::unbounded_channel();
            candidate(&arena.one, "ada", led.clone());
            assert_eq!(next(&mut leaders).await, ("ada", 1));
            candidate(&arena.other, "grace", led);
            timeout(PATIENCE, waiting(&arena.one)).await.expect("the second candidate waits");
            for expected in [("grace", 1), ("ada", 2), ("grace", 2)] {
                assert!(arena.one.force_release("leader", "a test").await.unwrap());
                assert_eq!(next(&mut leaders).await, expected, "{}", arena.name);
                timeout(PATIENCE, waiting(&arena.one)).await.expect("the deposed one waits again");
            }
        });
        runtime.block_on(async {
            arena.one.shutdown().await;
            arena.other.shutdown().await;
        });
        arena.assert_clean();
    }
}

async fn waiting(locks: &Locks) {
    while locks.status("leader").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_body_s_value_ends_it_and_the_lock_is_free() {
    let locks = Locks::in_memory();
    let value = locks.mutex("k").lead(async |guard| guard.key().len()).await;
    assert_eq!(value, Ok(1));
    assert!(locks.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn bodies_end_with_the_loss_and_never_overlap() {
    let locks = Locks::in_memory();
    let (running, terms) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    struct Runs(Arc<AtomicU32>);
    impl Drop for Runs {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let request = locks.mutex("k").max_hold(Duration::from_millis(40));
    let body = async |_: &redis_locks::Guard| {
        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
        let _runs = Runs(Arc::clone(&running));
        if terms.fetch_add(1, Ordering::SeqCst) < 3 {
            std::future::pending::<()>().await;
        }
        "done"
    };
    let value = timeout(PATIENCE, request.lead(body)).await.unwrap();
    assert_eq!(value, Ok("done"));
    assert_eq!(terms.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_body_that_had_ended_before_the_loss_is_not_run_again() {
    let locks = Locks::in_memory();
    let mut runs = 0;
    let outcome = locks
        .mutex("k")
        .lead(async |guard| {
            runs += 1;
            // Blocks, so that the loss is not noticed before the body's end.
            locks.blocking_force_release(guard.key(), "a test").unwrap();
            "done"
        })
        .await;
    assert!(outcome.as_ref().is_err_and(LockError::is_lost), "{outcome:?}");
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn a_wait_that_runs_out_is_an_error() {
    let locks = Locks::in_memory();
    let _held = locks.mutex("k").acquire().await.unwrap();
    let outcome = locks.mutex("k").no_wait().lead(async |_| ()).await;
    assert!(outcome.unwrap_err().is_busy());
}

#[tokio::test]
async fn an_outage_ends_no_candidate() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let open = || Locks::builder().url(proxy.url()).outage(ms(200)).command_timeout(ms(200));
    let locks = open().open().unwrap();
    let (led, mut leaders) = mpsc::unbounded_channel();
    let candidate = |request: LockRequest, name: &'static str| {
        let led = led.clone();
        tokio::spawn(request.ttl(ms(600)).lead(async move |guard| {
            led.send((name, guard.token().clone())).unwrap();
            std::future::pending::<()>().await;
        }))
    };
    let patient = candidate(locks.mutex("patient"), "patient");
    let first = next(&mut leaders).await;
    let hasty = candidate(locks.mutex("hasty").no_wait(), "hasty");
    assert_eq!(next(&mut leaders).await.0, "hasty");
    proxy.refuse();
    proxy.kill_all();
    let term = Instant::now();
    while term.elapsed() < ms(2_500) {
        let ended = (patient.is_finished(), hasty.is_finished());
        assert_eq!(ended, (false, false), "after {:?} of the outage", term.elapsed());
        tokio::time::sleep(ms(10)).await;
    }
    proxy.pass();
    let again = [next(&mut leaders).await, next(&mut leaders).await];
    assert!(again.iter().any(|(name, token)| *name == "patient" && *token != first.1));
    assert!(again.iter().any(|(name, _)| *name == "hasty"), "{again:?}");
}

#[tokio::test]
async fn a_fault_that_waiting_cannot_fix_ends_a_candidate() {
    let server = Server::builder().user("reader on >secret ~* +ping +info +hello +client").start();
    let url = format!("redis://reader:secret@127.0.0.1:{}", server.port());
    let locks = Locks::open(url).unwrap();
    let outcome = timeout(PATIENCE, locks.mutex("k").lead(async |_| ())).await.unwrap();
    let LockError::Backend { source, .. } = outcome.unwrap_err() else { panic!("it is refused") };
    assert_eq!(source.kind(), BackendErrorKind::Rights, "{source}");
}
