//! `redis-lock release`.

use std::io::{Write, stderr, stdin, stdout};

use redis_lock_core::{Locks, Status};
use serde_json::json;

use crate::args::{Common, Release};
use crate::exit::{Code, Failure};
use crate::table;

pub(crate) async fn release(
    locks: &Locks,
    common: &Common,
    task: &Release,
) -> Result<Code, Failure> {
    let released = (task.yes || agreed(&locks.status(task.key.as_str()).await?)?)
        && locks.force_release(task.key.as_str(), &task.reason).await?;
    let mut out = stdout().lock();
    if common.json {
        let report = json!({ "key": task.key, "released": released, "reason": task.reason });
        writeln!(out, "{report}")?;
    } else if released {
        writeln!(out, "released {}", task.key)?;
    } else {
        writeln!(out, "nothing was released")?;
    }
    Ok(if released { Code::OK } else { Code::NO })
}

/// Asks whether to go on. Without an answer the answer is no.
fn agreed(status: &Status) -> Result<bool, Failure> {
    if !status.is_held() {
        return Ok(true);
    }
    let mut out = stderr().lock();
    for holder in &status.holders {
        let (name, held) = (table::name(holder), table::held_for(holder));
        writeln!(out, "{} is held by {name}, for {held}", status.key)?;
    }
    write!(out, "End it? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
