//! What the pages for those who come from another library say of keys and values, against a server.

use std::time::Duration;

use redis_locks::{BackendErrorKind, LockError, Locks, key, redis_lock};
use testbed::Server;

const TTL: &str = "NX PX 30000";

/// That the page says it, so that this test is about what it says.
#[track_caller]
fn says(page: &str, what: &str) {
    let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(what), "{page} does not say: {what}");
}

fn bare(server: &Server) -> Locks {
    Locks::builder().url(server.url()).namespace("").open().unwrap()
}

/// Whether another program's `SET key value NX PX ttl` gets the lock.
fn they_get(server: &Server, key: &str) -> bool {
    server.run::<Option<String>>(&format!("SET {key} theirs {TTL}")).is_some()
}

#[redis_lock(key = "file:{path}", via = locks, wait = "none", on_busy = Ok(false))]
async fn beside_them(locks: &Locks, path: &str) -> Result<bool, LockError> {
    Ok(true)
}

#[tokio::test]
async fn rslock_and_redsync_have_the_same_bare_key_as_a_manager_without_a_namespace()
-> Result<(), LockError> {
    says("FROM-REDLOCK.md", r#"`Locks::builder().url(url).namespace("").connect().await?`"#);
    says("FROM-REDLOCK.md", r#"`.namespace("")`"#);
    let server = Server::start();
    let locks = bare(&server);
    let guard = locks.mutex("order:42").acquire().await?;
    assert!(!they_get(&server, "order:42"));
    guard.release().await?;
    assert!(they_get(&server, "order:42"));
    assert!(locks.mutex("order:42").try_acquire().await?.is_none());
    // Theirs is released by a delete of their own value.
    server.run::<()>("DEL order:42");
    locks.mutex("order:42").acquire().await?.release().await
}

#[tokio::test]
async fn the_default_namespace_stands_before_each_key() -> Result<(), LockError> {
    says("FROM-REDLOCK.md", r#"`locks.mutex("acme")` is their `lock:acme`"#);
    let server = Server::start();
    let locks = Locks::connect(server.url()).await?;
    let guard = locks.mutex("acme").acquire().await?;
    assert!(they_get(&server, "acme") && !they_get(&server, "lock:acme"));
    guard.release().await
}

#[tokio::test]
async fn templates_escape_values_and_mutexes_take_the_text() -> Result<(), LockError> {
    says("FROM-REDLOCK.md", "`file:{path}` with `a/b` becomes `file:a%2Fb`");
    says("FROM-REDLOCK.md", "which does not exclude their `file:a/b`");
    let server = Server::start();
    let locks = bare(&server);
    assert!(they_get(&server, "file:a/b"));
    assert!(beside_them(&locks, "a/b").await?, "the page warns of this");
    let path = "a/b";
    assert_eq!(key!("file:{path}")?.as_str(), "file:a%2Fb");
    assert!(locks.mutex(format!("file:{path}")).try_acquire().await?.is_none());
    assert!(they_get(&server, "file:a%2Fb"));
    assert!(!beside_them(&locks, "a/b").await?);
    Ok(())
}

#[tokio::test]
async fn a_lock_of_redisson_is_foreign_and_left_alone() -> Result<(), LockError> {
    says("FROM-REDISSON.md", "Redisson stores a lock as a hash");
    says("FROM-REDISSON.md", "a plain `SET key token NX PX ttl`");
    let server = Server::start();
    let locks = bare(&server);
    let theirs = "HSET order:42 4a5b1c9e-0000-4000-8000-000000000000:1 1";
    server.run::<()>(theirs);
    let error = locks.mutex("order:42").try_acquire().await.unwrap_err();
    let LockError::Backend { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), BackendErrorKind::Foreign, "{error}");
    assert_eq!(server.run::<usize>("HLEN order:42"), 1);
    server.run::<()>("DEL order:42");
    assert!(they_get(&server, "order:42"));
    assert!(locks.mutex("order:42").try_acquire().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn an_environment_of_shedlock_is_a_namespace() -> Result<(), LockError> {
    says("FROM-SHEDLOCK.md", r#"| `environment` | `.namespace("production")` |"#);
    let server = Server::start();
    let locks = Locks::builder().url(server.url()).namespace("production").connect().await?;
    let guard = locks.mutex("nightly").min_hold(Duration::from_secs(300)).acquire().await?;
    guard.release().await?;
    assert!(!they_get(&server, "production:nightly"), "kept by min_hold");
    Ok(())
}

#[tokio::test]
async fn a_value_of_rslock_is_shown_in_hex() -> Result<(), LockError> {
    let server = Server::start();
    let locks = bare(&server);
    let value: Vec<u8> = (0..20).map(|byte| 0xf0 ^ byte).collect();
    let mut set = redis::cmd("SET");
    set.arg("order:42").arg(&value).arg("PX").arg(30_000);
    server.query::<()>(&set).unwrap();
    let error = locks.mutex("order:42").no_wait().acquire().await.unwrap_err();
    assert!(error.is_busy());
    assert!(error.to_string().contains("held by 0xf0f1f2f3f4"), "{error}");
    let status = locks.status("order:42").await?;
    assert!(status.holders[0].token.to_string().starts_with("0xf0f1"), "{status:?}");
    Ok(())
}
