//! A lock that passes from one process to another: `cargo run --example request_to_worker`.
//!
//! A request takes the lock and answers at once. The work continues in a worker, which gets the
//! token with its job and releases the lock. Until the job is done, a second request for the same
//! account is refused.

use std::time::Duration;

use redis_locks::{LockError, Locks, Token};

/// How long a job may stay in the job queue before its lock expires.
const QUEUED: Duration = Duration::from_secs(60);

/// The message from the request to the worker, as text.
pub(crate) struct Job {
    pub(crate) account: String,
    pub(crate) token: String,
}

/// The request: the lock is taken, or the caller learns that a job is under way.
pub(crate) async fn accept(locks: &Locks, account: &str) -> Result<Option<Job>, LockError> {
    let key = format!("example:export:{account}");
    let Some(guard) = locks.mutex(key).ttl(QUEUED).try_acquire().await? else { return Ok(None) };
    Ok(Some(Job { account: account.to_owned(), token: guard.detach().to_string() }))
}

/// The worker: it renews the lock while it works, and releases it. It does not start a job whose
/// lock has expired.
pub(crate) async fn work(locks: &Locks, job: &Job) -> Result<(), LockError> {
    let key = format!("example:export:{}", job.account);
    let token: Token = job.token.parse()?;
    let guard = locks.mutex(key).adopt(token).await?;
    // … the export …
    guard.release().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("{}", demo(&locks, &locks).await?.join("\n"));
    locks.shutdown().await;
    Ok(())
}

/// Says what happened; `web` and `worker` are two processes.
pub(crate) async fn demo(web: &Locks, worker: &Locks) -> Result<Vec<&'static str>, LockError> {
    let mut log = Vec::new();
    let Some(job) = accept(web, "ada").await? else { return Ok(vec!["busy"]) };
    log.push("the request is answered");
    if accept(web, "ada").await?.is_none() {
        log.push("a second one is turned away");
    }
    work(worker, &job).await?;
    log.push("the worker is done");
    match work(worker, &job).await {
        Err(error) if error.is_lost() => log.push("the same job is not done twice"),
        Err(error) => return Err(error),
        Ok(()) => log.push("done twice"),
    }
    Ok(log)
}
