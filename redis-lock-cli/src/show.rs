//! `redis-lock show`.

use std::io::{Write, stdout};

use redis_lock_core::Locks;

use crate::args::{Common, Show};
use crate::exit::{Code, Failure, reported};
use crate::{json, table};

pub(crate) async fn show(locks: &Locks, common: &Common, task: &Show) -> Result<Code, Failure> {
    let status = locks.status(task.key.text()).await?;
    let mut out = stdout().lock();
    if task.value {
        let value = status.done.and_then(|done| done.value);
        let written = value.as_ref().map_or(Ok(()), |it| writeln!(out, "{}", it.json()));
        return reported(written, if value.is_some() { Code::OK } else { Code::NO });
    }
    let written = match common.json {
        true => writeln!(out, "{}", json::status(&status)),
        false => {
            let mut lines = table::details(&status, table::is_coloured()).into_iter();
            lines.try_for_each(|line| writeln!(out, "{line}"))
        }
    };
    reported(written, if status.is_held() { Code::OK } else { Code::NO })
}
