//! `redis-lock watch`.

use std::io::{IsTerminal, Write, stdout};
use std::time::SystemTime;

use redis_lock_core::{LockError, LockStatus, Locks};
use rustix::process::Signal;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Common, Watch};
use crate::exit::{Code, Failure};
use crate::screen::Screen;
use crate::timestamp::rfc3339;
use crate::{json, table};

pub(crate) async fn watch(locks: &Locks, common: &Common, task: &Watch) -> Result<Code, Failure> {
    let redraws = stdout().is_terminal() && !common.json;
    // Listened to from the start: an interrupt that comes during a look counts as well.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut ends = signal(SignalKind::terminate())?;
    let mut screen = if redraws { Some(Screen::enter(stdout())?) } else { None };
    let mut last = None;
    let mut looks = 0;
    loop {
        let seen = look(locks, &task.pattern).await?;
        let news = Some(gist(&seen));
        if redraws || news != last {
            let picture = picture(&seen, common.json);
            match &mut screen {
                Some(screen) => screen.show(&picture)?,
                None => stdout().write_all(picture.as_bytes())?,
            }
        }
        last = news;
        looks += 1;
        if task.count.is_some_and(|count| looks >= count) {
            return Ok(Code::OK);
        }
        tokio::select! {
            () = tokio::time::sleep(task.interval) => {}
            _ = interrupts.recv() => return Ok(Code::OK),
            _ = ends.recv() => return Ok(Code::of_signal(Signal::TERM.as_raw())),
        }
    }
}

async fn look(locks: &Locks, pattern: &str) -> Result<Vec<LockStatus>, LockError> {
    let mut listing = locks.list(pattern);
    let mut seen = Vec::new();
    while let Some(status) = listing.next().await {
        seen.push(status?);
    }
    seen.sort_by(|one, other| one.key.cmp(&other.key));
    // A listing may bring a lock twice.
    seen.dedup_by(|one, other| one.key == other.key);
    Ok(seen)
}

/// The fields whose change is shown; a ttl that runs down is no change.
fn gist(seen: &[LockStatus]) -> Vec<(String, String, Vec<String>, usize)> {
    let gist = |status: &LockStatus| {
        let holders = status.holders.iter().map(|holder| holder.token.to_string()).collect();
        (status.key.clone(), status.kind.to_string(), holders, status.waiters.len())
    };
    seen.iter().map(gist).collect()
}

fn picture(seen: &[LockStatus], as_json: bool) -> String {
    let at = rfc3339(SystemTime::now());
    if as_json {
        let locks: Vec<_> = seen.iter().map(json::status).collect();
        return format!("{}\n", json!({ "at": at, "locks": locks }));
    }
    let coloured = table::is_coloured();
    let mut picture = format!("{at}  {} locks\n{}\n", seen.len(), table::header(coloured));
    for line in seen.iter().flat_map(|status| table::lines(status, coloured)) {
        picture.push_str(&line);
        picture.push('\n');
    }
    picture.push('\n');
    picture
}
