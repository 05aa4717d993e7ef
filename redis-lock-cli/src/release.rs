//! `redis-lock release`.

use std::io::{Write, stderr, stdin, stdout};

use redis_lock_core::{Done, Holder, LockKind, LockRequest, LockStatus, Locks, Token};
use serde_json::json;

use crate::args::{Common, Release};
use crate::exit::{Code, Failure, reported};
use crate::{getting, table};

pub(crate) async fn release(
    locks: &Locks,
    common: &Common,
    task: &Release,
) -> Result<Code, Failure> {
    let key = task.key.text();
    let reason = task.reason.as_deref().unwrap_or_default();
    let released = match &task.token {
        Some(token) => given_back(getting::request(locks, &key, &task.kind), token).await?,
        None => {
            (task.yes || agreed(locks, &key).await?)
                && locks.force_release(key.as_str(), reason).await?
        }
    };
    let mut out = stdout().lock();
    let written = if common.json {
        let report = json!({ "key": key, "released": released, "reason": task.reason });
        writeln!(out, "{report}")
    } else if released {
        writeln!(out, "released {}", table::plain(&key))
    } else {
        writeln!(out, "nothing was released")
    };
    reported(written, if released { Code::OK } else { Code::NO })
}

/// Ends the hold of a token; `false` when the token does not have the lock.
async fn given_back(request: LockRequest, token: &Token) -> Result<bool, Failure> {
    let ended = match request.adopt(token.clone()).await {
        Ok(guard) => guard.release().await,
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => Ok(true),
        Err(error) if error.is_lost() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Asks whether to go on. No answer counts as no.
async fn agreed(locks: &Locks, key: &str) -> Result<bool, Failure> {
    let status = locks.status(key).await?;
    if !status.is_held() && status.done.is_none() {
        // Who takes it from now on is not to lose it. What is no lock is refused in words.
        return Ok(status.kind == LockKind::Foreign);
    }
    if !answered(&status)? {
        return Ok(false);
    }
    let now = locks.status(key).await?;
    let is_shown = |holder: &Holder| status.holders.iter().any(|it| it.token == holder.token);
    let was_done = |done: &Done| status.done.as_ref().is_some_and(|it| it.at == done.at);
    let is_same = now.holders.iter().all(is_shown) && now.done.iter().all(was_done);
    if !is_same {
        writeln!(stderr(), "another holder has the lock now")?;
    }
    Ok(is_same)
}

/// Shows who would lose it, and reads the answer.
fn answered(status: &LockStatus) -> Result<bool, Failure> {
    let mut out = stderr().lock();
    if let Some(done) = &status.done {
        let by =
            done.by.as_deref().map_or_else(String::new, |by| format!(" by {}", table::plain(by)));
        writeln!(out, "{} was done{by}", table::plain(&status.key))?;
    }
    for holder in &status.holders {
        let (name, held) = (table::name(holder), table::held_for(holder));
        writeln!(out, "{} is held by {name}, for {held}", table::plain(&status.key))?;
    }
    write!(out, "End it? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    if stdin().read_line(&mut answer)? == 0 {
        writeln!(out, "\nredis-lock: standard input has no answer; --yes ends it without asking")?;
    }
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
