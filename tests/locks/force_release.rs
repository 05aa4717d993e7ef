//! Ending a hold by force.

use std::time::Duration;

use redis_locks::{Guard, LockError, Locks, LossReason};
use testbed::{Proxy, Server, ServerBinary};

const SECOND: Duration = Duration::from_secs(1);

/// A holder, a waiter and an operator, each a manager of its own.
struct Scene {
    _server: Option<Server>,
    managers: [Locks; 3],
}

fn scenes() -> Vec<Scene> {
    let binaries = [Some(ServerBinary::any()), ServerBinary::valkey(9)];
    let on_servers = binaries.into_iter().flatten().map(|binary| {
        let server = Server::builder().binary(binary).start();
        let managers = std::array::from_fn(|_| Locks::open(server.url()).unwrap());
        Scene { _server: Some(server), managers }
    });
    let memory = Locks::in_memory();
    let in_memory = Scene { _server: None, managers: std::array::from_fn(|_| memory.clone()) };
    on_servers.chain([in_memory]).collect()
}

/// The reason of the loss, which `guard` has to learn before its renewal, ten seconds after its acquisition.
async fn loss_reason(guard: &Guard) -> LossReason {
    let lost = tokio::time::timeout(5 * SECOND, guard.lost());
    lost.await.expect("the holder learns of its loss at once")
}

fn is_removed(reason: &LossReason, why: &str) -> bool {
    matches!(reason, LossReason::Removed { because: Some(because), .. } if because == why)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_learns_the_reason_at_once_and_the_waiter_gets_the_lock() {
    for Scene { _server, managers: [holder, waiter, operator] } in scenes() {
        let guard = holder.mutex("a").fenced().acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.mutex("a").fenced().acquire());
        while operator.status("a").await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(operator.force_release("a", "it hangs").await.unwrap());
        let reason = loss_reason(&guard).await;
        assert!(is_removed(&reason, "it hangs"), "{reason:?}");
        let next = tokio::time::timeout(5 * SECOND, waiting).await.unwrap().unwrap().unwrap();
        assert!(next.fence() > guard.fence(), "{:?} {:?}", next.fence(), guard.fence());
        assert!(!guard.is_held() && next.is_held());
        let error = guard.release().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        next.verify().await.unwrap();
        next.release().await.unwrap();
        assert!(!operator.force_release("a", "again").await.unwrap(), "it is free");
    }
}

#[tokio::test]
async fn a_body_under_run_is_stopped() {
    for Scene { _server, managers: [holder, _, operator] } in scenes() {
        let running = holder.mutex("a").run(async |_| {
            operator.force_release("a", "stop it").await.unwrap();
            std::future::pending::<()>().await;
        });
        let error = tokio::time::timeout(5 * SECOND, running).await.unwrap().unwrap_err();
        let LockError::Lost { reason, .. } = &error else { panic!("{error}") };
        assert!(is_removed(reason, "stop it"), "{error}");
    }
}

#[tokio::test]
async fn a_hold_that_never_expires_ends() {
    for Scene { _server, managers: [holder, _, operator] } in scenes() {
        let guard = holder.mutex("a").never_expires().acquire().await.unwrap();
        assert!(operator.force_release("a", "a person has looked").await.unwrap());
        assert!(is_removed(&loss_reason(&guard).await, "a person has looked"));
        assert!(operator.mutex("a").try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn locks_of_other_clients_end_and_data_of_other_programs_stay() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    server.run::<()>("SET lock:py 0123abcd");
    assert!(locks.force_release("py", "its process is gone").await.unwrap());
    assert!(!server.exists("lock:py"));
    server.run::<()>("HSET lock:data field 1");
    let error = locks.force_release("data", "x").await.unwrap_err();
    assert!(
        matches!(&error, LockError::Backend { source, .. } if !source.is_retryable()),
        "{error}"
    );
    assert!(server.exists("lock:data"));
}

/// Without the right to publish, the holder learns of it by its own renewal, with the reason.
#[tokio::test]
async fn without_messages_the_next_renewal_brings_the_reason() {
    let server = Server::builder().user("app on >secret ~* resetchannels +@all").start();
    let url = server.url().replace("redis://", "redis://app:secret@");
    let [holder, waiter, operator]: [Locks; 3] =
        std::array::from_fn(|_| Locks::open(&url).unwrap());
    let guard = holder.mutex("a").ttl(2 * SECOND).acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.mutex("a").acquire());
    while operator.status("a").await.unwrap().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(operator.force_release("a", "quietly").await.unwrap());
    let reason = tokio::time::timeout(5 * SECOND, guard.lost()).await.unwrap();
    assert!(is_removed(&reason, "quietly"), "{reason:?}");
    drop(tokio::time::timeout(5 * SECOND, waiting).await.unwrap().unwrap().unwrap());
}

#[tokio::test]
async fn force_works_when_the_servers_memory_is_full() {
    let server = Server::start();
    let [holder, operator]: [Locks; 2] =
        std::array::from_fn(|_| Locks::open(server.url()).unwrap());
    let guard = holder.mutex("a").acquire().await.unwrap();
    server.run::<()>("CONFIG SET maxmemory 1");
    assert!(operator.force_release("a", "full").await.unwrap());
    assert!(is_removed(&loss_reason(&guard).await, "full"));
    server.run::<()>("CONFIG SET maxmemory 0");
}

/// The first try is done and its answer lost: the second one must not say that it was free.
#[tokio::test]
async fn a_lost_answer_does_not_hide_what_was_done() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let holder = Locks::open(server.url()).unwrap();
    let operator = Locks::open(proxy.url()).unwrap();
    let guard = holder.mutex("a").acquire().await.unwrap();
    // The server knows the script from here on.
    let other = holder.mutex("c").acquire().await.unwrap();
    assert!(operator.force_release("c", "first").await.unwrap());
    loss_reason(&other).await;
    proxy.cut_reply_to("it hangs");
    assert!(operator.force_release("a", "it hangs").await.unwrap());
    assert_eq!(proxy.cuts(), 1);
    assert!(is_removed(&loss_reason(&guard).await, "it hangs"));
}

#[test]
fn the_blocking_twin_does_the_same() {
    let locks = Locks::in_memory();
    let guard = locks.mutex("a").blocking_acquire().unwrap();
    assert!(locks.blocking_force_release("a", "").unwrap());
    assert!(guard.blocking_release().is_err());
    assert!(!locks.blocking_force_release("a", "").unwrap());
}
