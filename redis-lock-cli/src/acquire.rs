//! `redis-lock acquire`.

use std::io::{self, Write, stdout};
use std::os::fd::AsFd;

use redis_lock_core::{Locks, Token};
use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};
use serde_json::json;

use crate::args::{Acquire, Common};
use crate::exit::{Code, Failure};
use crate::getting;
use crate::signals::Signals;

pub(crate) async fn acquire(
    locks: &Locks,
    common: &Common,
    task: &Acquire,
) -> Result<Code, Failure> {
    let mut signals = Signals::listen()?;
    if is_closed(stdout())? {
        let what = "standard output is closed, so the token can't be printed; nothing was acquired";
        return Err(io::Error::other(what).into());
    }
    let key = task.key.to_take()?;
    let request = || getting::request(locks, &key, &task.hold.kind).ttl(task.ttl).renew(false);
    let fenced = if task.fence { request().fenced() } else { request() };
    // If a signal ends the wait, a lock that was granted just now is released.
    let guard = tokio::select! {
        acquired = getting::get(fenced, &task.getting) => acquired?,
        signal = signals.next() => return Ok(Code::of_signal(signal.as_raw())),
    };
    let fence = guard.fence();
    let token = guard.detach();
    if let Err(error) = print(common, &key, &token, fence) {
        // The caller has no token to release the lock with.
        request().adopt(token).await?.release().await?;
        return Err(error.into());
    }
    Ok(Code::OK)
}

/// Whether this stream was closed when the program started. Rust's runtime then opens `/dev/null` for
/// reading and writing. A redirection to it opens it for writing only.
fn is_closed(stream: impl AsFd) -> io::Result<bool> {
    let null = stat("/dev/null")?;
    let is_null = fstat(&stream)?.st_rdev == null.st_rdev;
    let mode = fcntl_getfl(&stream)? & OFlags::RWMODE;
    Ok(is_null && mode == OFlags::RDWR)
}

fn print(common: &Common, key: &str, token: &Token, fence: Option<u64>) -> io::Result<()> {
    let mut out = stdout().lock();
    match (common.json, fence) {
        (true, _) => {
            let report = json!({ "key": key, "token": token.to_string(), "fence": fence });
            writeln!(out, "{report}")
        }
        (false, Some(fence)) => writeln!(out, "{token} {fence}"),
        (false, None) => writeln!(out, "{token}"),
    }
}
