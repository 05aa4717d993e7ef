//! `redis-lock ls`.

use std::io::{Write, stderr, stdout};

use redis_lock_core::Locks;

use crate::args::{Common, Ls};
use crate::exit::{Code, Failure};
use crate::{json, server, table};

pub(crate) async fn list(locks: &Locks, common: &Common, task: &Ls) -> Result<Code, Failure> {
    let coloured = table::is_coloured();
    let mut out = stdout().lock();
    let mut listing = locks.list(&task.pattern);
    let mut first = true;
    while let Some(status) = listing.next().await {
        let status = status?;
        let is_first = std::mem::take(&mut first);
        if common.json {
            writeln!(out, "{}", json::status(&status))?;
            continue;
        }
        if is_first {
            writeln!(out, "{}", table::header(coloured))?;
        }
        for line in table::lines(&status, coloured) {
            writeln!(out, "{line}")?;
        }
    }
    if first && !common.json {
        let namespace = server::namespace(common).unwrap_or_else(|| "lock".into());
        let matching = match task.pattern.as_str() {
            "*" => String::new(),
            pattern => format!(" that match `{}`", table::plain(pattern)),
        };
        let place = format!("namespace `{}`", table::plain(&namespace));
        writeln!(stderr(), "redis-lock: no locks{matching} in {place}")?;
    }
    Ok(Code::OK)
}
