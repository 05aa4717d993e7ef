//! `redis-lock show`.

use std::io::{Write, stdout};

use redis_lock_core::Locks;

use crate::args::{Common, Show};
use crate::exit::{Code, Failure};
use crate::{json, table};

pub(crate) async fn show(locks: &Locks, common: &Common, task: &Show) -> Result<Code, Failure> {
    let status = locks.status(task.key.text()).await?;
    let mut out = stdout().lock();
    if common.json {
        writeln!(out, "{}", json::status(&status))?;
    } else {
        for line in table::details(&status, table::is_coloured()) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if status.is_held() { Code::OK } else { Code::NO })
}
