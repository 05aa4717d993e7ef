//! `redis-lock ls`.

use std::io::{Write, stdout};

use redis_lock_core::Locks;

use crate::args::{Common, Ls};
use crate::exit::{Code, Failure};
use crate::{json, table};

pub(crate) async fn list(locks: &Locks, common: &Common, task: &Ls) -> Result<Code, Failure> {
    let coloured = table::is_coloured();
    let mut out = stdout().lock();
    let mut listing = locks.list(&task.pattern);
    let mut first = true;
    while let Some(status) = listing.next().await {
        let status = status?;
        if common.json {
            writeln!(out, "{}", json::status(&status))?;
            continue;
        }
        if std::mem::take(&mut first) {
            writeln!(out, "{}", table::header(coloured))?;
        }
        for line in table::lines(&status, coloured) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(Code::OK)
}
