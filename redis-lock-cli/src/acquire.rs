//! `redis-lock acquire`.

use std::io::{self, Write, stdout};

use redis_lock_core::{Locks, Token};
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
    let token = request.acquire().await?.detach();
    if let Err(error) = print(common, &task.key, &token) {
        // Nobody could end the hold, so it is given back.
        locks.mutex(task.key.as_str()).adopt(token).await?.release().await?;
        return Err(error.into());
    }
    Ok(Code::OK)
}

fn print(common: &Common, key: &str, token: &Token) -> io::Result<()> {
    let mut out = stdout().lock();
    match common.json {
        true => writeln!(out, "{}", json!({ "key": key, "token": token.to_string() })),
        false => writeln!(out, "{token}"),
    }
}
