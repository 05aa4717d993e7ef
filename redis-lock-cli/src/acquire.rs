//! `redis-lock acquire`.

use std::io::{self, Write, stdout};

use redis_lock_core::{Locks, Token};
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
    let key = task.key.text();
    let request = || getting::request(locks, &key, &task.getting.kind).ttl(task.ttl).renew(false);
    let fenced = if task.fence { request().fenced() } else { request() };
    // A lock that was granted meanwhile is released.
    let guard = tokio::select! {
        acquired = getting::get(fenced, &task.getting) => acquired?,
        signal = signals.next() => return Ok(Code::of_signal(signal.as_raw())),
    };
    let fence = guard.fence();
    let token = guard.detach();
    if let Err(error) = print(common, &key, &token, fence) {
        // Without its token the hold could not be ended, so it is given back.
        request().adopt(token).await?.release().await?;
        return Err(error.into());
    }
    Ok(Code::OK)
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
