//! `redis-lock check`.

use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use redis_lock_core::{LockKind, LockStatus, Locks, ServerInfo, Topology, Wait};
use serde_json::json;

use crate::args::{Check, Common};
use crate::exit::{Code, Failure, reported};
use crate::table;

/// How many keys are looked up in a cluster, so that each primary is likely to have one of them.
const LOOKS: u32 = 64;

/// How many locks one warning names.
const NAMED: usize = 5;

pub(crate) async fn check(locks: &Locks, common: &Common, task: &Check) -> Result<Code, Failure> {
    let pair = pair(locks, task).await?;
    let (server, mut warnings) = look(locks).await?;
    warnings.extend(of_server(&server));
    let (count, endless) = list(locks).await?;
    warnings.extend(of_endless(&endless));
    let fails = task.strict && !warnings.is_empty();
    let code = if fails { Code::NO } else { Code::OK };
    if common.json {
        let report = json!({
            "ok": warnings.is_empty(),
            "version": server.version,
            "topology": server.topology.to_string(),
            "scripts": server.scripts,
            "pair_ms": pair.as_secs_f64() * 1_000.0,
            "locks": count,
            "warnings": warnings,
        });
        return reported(writeln!(stdout(), "{report}"), code);
    }
    let version = table::plain(&server.version);
    let mut lines = vec![
        format!("server   {version}, {}", server.topology),
        format!("lock     acquired and released in {pair:.1?}"),
        format!("locks    {count}"),
    ];
    lines.extend(warnings.iter().map(|warning| format!("warning  {}", table::plain(warning))));
    reported(writeln!(stdout(), "{}", lines.join("\n")), code)
}

/// Acquires and releases a lock under a key of this process.
async fn pair(locks: &Locks, task: &Check) -> Result<Duration, Failure> {
    let start = Instant::now();
    let key = format!("redis-lock-check:{}", std::process::id());
    // No shorter than replicas may take to have it.
    let ttl = task.ttl.max(Duration::from_secs(10));
    let guard = locks.mutex(key).ttl(ttl).wait(Wait::For(ttl)).acquire().await?;
    guard.release().await?;
    Ok(start.elapsed())
}

/// The server, and the warnings from connecting to it or to each node.
async fn look(locks: &Locks) -> Result<(ServerInfo, BTreeSet<String>), Failure> {
    let mut warnings = BTreeSet::new();
    let mut number = 0;
    loop {
        let LockStatus { server, .. } = locks.status(format!("redis-lock-check:{number}")).await?;
        warnings.extend(server.warnings.iter().cloned());
        number += 1;
        if server.topology != Topology::Cluster || number == LOOKS {
            return Ok((server, warnings));
        }
    }
}

fn of_server(server: &ServerInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if !server.scripts {
        let what = "scripts are denied, so there are only mutexes: no read-write locks, permits or locks \
                    of several keys; allow EVAL, EVALSHA and SCRIPT LOAD";
        warnings.push(what.into());
    }
    for node in &server.nodes {
        if let Some(trouble) = &node.trouble {
            warnings.push(format!("{}: {trouble}", node.address));
        }
    }
    warnings
}

/// The number of locks, and the keys of other clients' locks that never expire.
async fn list(locks: &Locks) -> Result<(usize, Vec<String>), Failure> {
    let (mut count, mut endless) = (0, Vec::new());
    let mut listing = locks.list("*");
    while let Some(status) = listing.next().await {
        let status = status?;
        count += 1;
        let is_foreign = status.kind == LockKind::Foreign;
        if is_foreign && status.holders.iter().any(|holder| holder.ttl.is_none()) {
            endless.push(status.key);
        }
    }
    Ok((count, endless))
}

fn of_endless(endless: &[String]) -> Option<String> {
    let named: Vec<_> = endless.iter().take(NAMED).map(|key| format!("`{key}`")).collect();
    let count = endless.len();
    (count > 0).then(|| {
        format!(
            "{count} locks of other clients have no ttl and stay if their holder dies, for example \
             {}; end those that are dead: redis-lock release KEY --reason TEXT",
            named.join(", ")
        )
    })
}
