//! `redis-lock run`.

mod child;
mod group;
pub(crate) mod start;
mod supervisor;
mod terminal;

use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use redis_lock_core::{Guard, LockError, LockRequest, Locks, LossReason, Wait};

use crate::args::{Common, Run};
use crate::exit::{Code, Failure};
use crate::signals::Signals;
use crate::{getting, json, table};
use child::Child;
use supervisor::{End, Supervisor};
use terminal::Terminal;

pub(crate) async fn run(locks: &Locks, common: &Common, task: Run) -> Result<Code, Failure> {
    let mut signals = Signals::listen()?;
    let asked = Instant::now();
    if task.newest && matches!(task.getting.wait(), Wait::None) {
        return Err(Failure::Usage("--newest can't be used with --wait none".into()));
    }
    let key = task.key.to_take()?;
    let request = request(locks, &key, &task);
    let done = |failure| match failure {
        Failure::Lock(error @ LockError::Done { .. }) => {
            let (code, quiet) = (task.done_exit_code, task.getting.quiet);
            Failure::Busy { error, code, quiet }
        }
        other => other,
    };
    let guard = tokio::select! {
        acquired = getting::get(request, &task.getting) => acquired.map_err(done)?,
        signal = signals.next() => return Ok(Code::of_signal(signal.as_raw())),
    };
    if common.json {
        let waited = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        say(&json::acquired(&guard, waited));
    }
    signals.listen_to_jobs()?;
    // Who reads that may have taken longer than the lease.
    guard.ensure(Duration::ZERO)?;
    let terminal = Terminal::find();
    let in_foreground = terminal.as_ref().is_some_and(Terminal::is_ours);
    let child = Child::spawn(&task.command, &guard, in_foreground, common.json)?;
    let supervisor = Supervisor::new(child, &guard, terminal, task.grace);
    let report = |pids: &[u32]| say(&left_behind(&key, pids, common.json));
    let end = supervisor.supervise(&mut signals, report).await;
    let succeeds = task.once.is_some() && matches!(end, End::Command(Code::OK));
    let lost = release(guard, succeeds, common.json).await;
    let (line, json, code) = match (end, lost) {
        (End::Lost(reason), _) | (_, Some(reason)) => {
            let reason = reason.to_string();
            (format!("was lost: {reason}"), json::lost(&key, &reason), Code::LOST)
        }
        (End::Superseded, _) if task.getting.quiet => return Ok(Code::SUPERSEDED),
        (End::Superseded, _) => {
            let line = "was superseded by a newer call, and the command was stopped".to_owned();
            (line, json::superseded(&key), Code::SUPERSEDED)
        }
        (End::Stopped(Code::OK), None) if task.once.is_some() => {
            let line = "has no recorded success: the command's processes were told to end, and it exited with 0";
            (line.to_owned(), json::stopped(&key), Code::OK)
        }
        (End::Command(code) | End::Stopped(code), None) => return Ok(code),
    };
    say(&if common.json {
        json
    } else {
        table::plain(&format!("redis-lock: lock `{key}` {line}"))
    });
    Ok(code)
}

/// The request that these options make.
fn request(locks: &Locks, key: &str, task: &Run) -> LockRequest {
    let kind = &task.hold.kind;
    let mut request = getting::request(locks, key, kind).ttl(task.ttl);
    // Several hold it at once otherwise, and a number would tell none of them apart as the latest.
    if !task.no_fence && !kind.read && kind.permits.is_none() {
        request = request.fenced();
    }
    if task.slot {
        request = request.slotted();
    }
    if task.newest {
        request = request.newest();
    }
    if let Some(margin) = task.margin {
        request = request.margin(margin);
    }
    if let Some(least) = task.min_hold {
        request = request.min_hold(least);
    }
    if let Some(limit) = task.max_hold {
        request = request.max_hold(limit);
    }
    if let Some(period) = task.once {
        request = request.once(period);
    }
    request
}

/// What is said when the command has ended and processes of its group run on.
fn left_behind(key: &str, pids: &[u32], json: bool) -> String {
    if json {
        return json::left_behind(key, pids);
    }
    let pids = match pids {
        [] => String::new(),
        pids => format!(" ({})", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    table::plain(&format!(
        "redis-lock: the command has ended, and processes that it started still run{pids}; \
         lock `{key}` is kept until they end"
    ))
}

/// Gives the lock back, or says that the command has succeeded. Returns why it was lost, if it was lost
/// before.
async fn release(guard: Guard, succeeds: bool, json: bool) -> Option<LossReason> {
    let key = guard.key().to_owned();
    let outcome = if succeeds { guard.complete().await } else { guard.release().await };
    if let (true, Err(error)) = (succeeds, &outcome) {
        let line = "redis-lock: success is not confirmed, so the command may run again";
        say(&match json {
            true => json::unconfirmed(&key, &error.to_string()),
            false => table::plain(&format!("{line}: {error}")),
        });
    }
    match outcome {
        // A lease that ran out only now was good until the command's end.
        Err(LockError::Lost { reason: LossReason::Expired | LossReason::HoldLimit, .. }) => None,
        Err(LockError::Lost { reason, .. }) => Some(reason),
        // The lease ends by itself.
        _ => None,
    }
}

/// Writes a line to standard error. If that fails, the command and its exit code still count.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
