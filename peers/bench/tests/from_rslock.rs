//! The code of `docs/FROM-REDLOCK.md`, beside the real `rslock`.

use std::time::Duration;

use redis_lock_core::{LockError, Locks};
use rslock::LockManager;
use testbed::Server;

const TTL: Duration = Duration::from_secs(30);

/// The first block of code of the page, as [`guarded`] has it.
fn on_the_page() -> Vec<String> {
    let page = include_str!("../../../docs/FROM-REDLOCK.md");
    let lines = page.lines().skip_while(|line| !line.starts_with("```rust")).skip(1);
    let code = lines.take_while(|line| !line.starts_with("```"));
    let code = code.filter(|line| !(line.starts_with("# ") || line.starts_with("use ")));
    code.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// What the page shows, with a look at the other library while the lock is held.
async fn guarded(url: &str, theirs: &LockManager) -> Result<Option<bool>, LockError> {
    let mut excluded = None;
    // <page>
    let locks = Locks::builder().url(url).namespace("").connect().await?;
    let path = "a/b";
    if let Some(guard) = locks.mutex(format!("file:{path}")).try_acquire().await? {
        println!("rslock's lock `file:a/b` is busy now");
        // </page>
        excluded = Some(theirs.lock("file:a/b", TTL).await.is_err());
        // <page>
        guard.release().await?;
    }
    // </page>
    Ok(excluded)
}

#[test]
fn the_page_shows_the_code_that_runs_here() {
    let mut is_on_page = false;
    let mut here = Vec::new();
    for line in include_str!("from_rslock.rs").lines().map(str::trim) {
        match line {
            "// <page>" => is_on_page = true,
            "// </page>" => is_on_page = false,
            line if is_on_page => here.push(line.to_owned()),
            _ => {}
        }
    }
    assert_eq!(on_the_page(), here);
}

#[tokio::test]
async fn a_mutex_without_a_namespace_and_rslock_exclude_each_other() -> Result<(), LockError> {
    let server = Server::start();
    let theirs = LockManager::new(vec![server.url()]);
    assert_eq!(guarded(&server.url(), &theirs).await?, Some(true));
    let lock = theirs.lock("file:a/b", TTL).await.expect("it was given back");
    assert_eq!(guarded(&server.url(), &theirs).await?, None);
    lock.release().await;
    assert_eq!(guarded(&server.url(), &theirs).await?, Some(true));
    Ok(())
}

#[tokio::test]
async fn with_the_default_namespace_both_run() -> Result<(), LockError> {
    let server = Server::start();
    let theirs = LockManager::new(vec![server.url()]);
    let locks = Locks::connect(server.url()).await?;
    let _guard = locks.mutex("file:a/b").acquire().await?;
    let _lock = theirs.lock("file:a/b", TTL).await.expect("the page warns of this");
    Ok(())
}
