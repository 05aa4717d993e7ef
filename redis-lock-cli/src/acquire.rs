//! `redis-lock acquire`.

use std::io::{Write, stdout};

use redis_lock_core::Locks;
use serde_json::json;

use crate::args::{Acquire, Common};
use crate::exit::{Code, Failure};

pub(crate) async fn acquire(
    locks: &Locks,
    common: &Common,
    task: Acquire,
) -> Result<Code, Failure> {
    let mut request = locks.mutex(task.key.as_str()).ttl(task.ttl).wait(task.wait).renew(false);
    if let Some(label) = &task.label {
        request = request.label(label);
    }
    let guard = request.acquire().await?;
    let mut out = stdout().lock();
    // If the token can't be printed, nobody could end the hold, so the guard releases it.
    if common.json {
        writeln!(out, "{}", json!({ "key": task.key, "token": guard.token().to_string() }))?;
    } else {
        writeln!(out, "{}", guard.token())?;
    }
    let _token = guard.detach();
    Ok(Code::OK)
}
