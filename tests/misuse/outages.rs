//! Servers that can't be used: an error after `outage`, whatever the wait.

use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, redis_lock};
use testbed::{PATIENCE, Proxy, Server, eventually, free_port, holds_for};

const OUTAGE: Duration = Duration::from_millis(1_500);

/// Waits for ever, as by default.
#[redis_lock(key = "job", via = locks)]
async fn job(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

async fn fails_with(url: &str, outage: Option<Duration>, says: &str) {
    let builder = Locks::builder().url(url);
    let locks = outage
        .map_or_else(|| builder.clone(), |limit| builder.clone().outage(limit))
        .open()
        .unwrap();
    let limit = outage.unwrap_or(Duration::from_secs(10)) + Duration::from_secs(1);
    let start = Instant::now();
    let outcome = tokio::time::timeout(limit, job(&locks)).await;
    let error = outcome.expect("the error comes in time").unwrap_err();
    assert!(start.elapsed() + Duration::from_millis(100) >= limit - Duration::from_secs(1));
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.is_retryable(), "{error}");
    let chain = format!("{:#}", anyhow::Error::from(error));
    assert_eq!(chain.matches(says).count(), 1, "{chain}");
    names_the_server(&chain, url);
}

/// It names the address once, and never the password.
#[track_caller]
fn names_the_server(said: &str, url: &str) {
    let address = url.rsplit(['/', '@']).next().unwrap();
    assert_eq!(said.matches(address).count(), 1, "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test]
async fn h1_a_server_that_is_down() {
    let url = format!("redis://user:secret@127.0.0.1:{}", free_port());
    fails_with(&url, Some(OUTAGE), "onnection refused").await;
    let connecting = Locks::builder().url(&url).connect().await;
    names_the_server(&connecting.unwrap_err().to_string(), &url);
    let looking = Locks::open(&url).unwrap().status("job").await;
    names_the_server(&looking.unwrap_err().to_string(), &url);
}

#[tokio::test]
async fn h1_a_server_that_does_not_answer_a_holder() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let limit = Duration::from_millis(300);
    let locks = Locks::builder().url(proxy.url()).command_timeout(limit).open().unwrap();
    let guard = locks.mutex("job").acquire().await.unwrap();
    proxy.hole();
    names_the_server(&guard.verify().await.unwrap_err().to_string(), &proxy.url());
    names_the_server(&guard.release().await.unwrap_err().to_string(), &proxy.url());
}

#[tokio::test]
async fn h1_a_server_that_is_down_with_the_default_limit() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    fails_with(&url, None, "onnection refused").await;
}

#[tokio::test]
async fn h1_a_host_that_has_no_name() {
    fails_with("redis://nobody.invalid:6379", Some(OUTAGE), "can't be used").await;
}

#[tokio::test]
async fn h1_a_server_that_swallows_everything() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.accept_and_ignore();
    fails_with(&proxy.url(), Some(OUTAGE), "no connection within").await;
}

// Of two threads, as this one watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_lock_is_waited_for_longer_than_an_outage() {
    let server = Server::start();
    let outage = Duration::from_millis(200);
    let open = || Locks::builder().url(server.url()).outage(outage).open().unwrap();
    let (locks, other) = (open(), open());
    let held = locks.mutex("job").acquire().await.unwrap();
    let waits = tokio::spawn(async move { job(&other).await });
    eventually(PATIENCE, "it waits", || server.exists("lock:{lock:job}:~q"));
    holds_for(outage * 3, "busy is no outage", || !waits.is_finished());
    held.release().await.unwrap();
    waits.await.unwrap().unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn h1_an_outage_without_an_end_is_waited_through() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.refuse();
    let locks = Locks::builder().url(proxy.url()).outage(Duration::MAX).open().unwrap();
    let waits = tokio::spawn(async move { job(&locks).await });
    tokio::time::sleep(OUTAGE).await;
    proxy.pass();
    waits.await.unwrap().unwrap();
    server.assert_clean();
}
