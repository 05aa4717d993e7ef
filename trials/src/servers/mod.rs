//! Runs every public call on each server, in each of its settings.

mod calls;
mod settings;
mod table;

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use testbed::ServerBinary;

use crate::root;
use calls::{CALLS, Call, HELD_WHILE_FULL, Told};
use settings::{Setting, Started};
use table::Table;

const DOCUMENT: &str = "docs/PROTOCOL.md";

/// Finds a server program, if it can be had.
type Find = fn() -> Option<ServerBinary>;

/// The servers, by the versions that they are asked for.
pub(crate) const SERVERS: [(&str, Find); 7] = [
    ("5.0", ServerBinary::redis_5),
    ("6.0", ServerBinary::redis_6_0),
    ("6.2", ServerBinary::redis_6),
    ("here", || Some(ServerBinary::any())),
    ("7.4", ServerBinary::redis_7_4),
    ("8", ServerBinary::redis_8),
    ("9", || ServerBinary::valkey(9)),
];

/// Fails when a call fails that is not refused by name, and when the outcome is not what the document says;
/// a full run writes it there, if that is wanted.
pub(crate) fn run(writes: bool, versions: &[String]) -> Result<()> {
    let path = root().join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let documented = Table::of(&text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (version, find) in SERVERS {
        if !versions.is_empty() && !versions.iter().any(|wanted| wanted == version) {
            continue;
        }
        let Some(binary) = find() else { bail!("the server {version} can't be had") };
        let name = name(&binary);
        let mut row = format!("| {name} |");
        for setting in Setting::ALL {
            let cell = runtime.block_on(try_all(&binary, setting, &mut failures));
            row = format!("{row} {cell} |");
        }
        println!("{row}");
        if let Some(other) = documented.row(&name).filter(|other| *other != row && !writes) {
            failures.push(format!("{DOCUMENT} says {other}"));
        }
        rows.push(row);
    }
    if writes && versions.is_empty() && failures.is_empty() {
        fs::write(&path, documented.with(&heading(), &rows))?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("{} failures:\n{}", failures.len(), failures.join("\n")),
    }
}

fn name(binary: &ServerBinary) -> String {
    let (major, minor, patch) = binary.version();
    format!("{:?} {major}.{minor}.{patch}", binary.flavor())
}

fn heading() -> String {
    let names: Vec<_> = Setting::ALL.iter().map(|setting| setting.name()).collect();
    format!("| server | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()))
}

/// Runs all calls in one setting. Returns what the table shows.
async fn try_all(
    binary: &ServerBinary,
    setting: Setting,
    failures: &mut Vec<String>,
) -> &'static str {
    let Some(started) = Started::new(binary, setting) else { return "not known there" };
    let started = Arc::new(started);
    if setting.is_full() {
        return match HELD_WHILE_FULL.run(started).await {
            Told::Works => "kept",
            // What the document says of servers that queue nothing for a transaction then.
            Told::Failed(what) if !setting.has_scripts() && what.contains("its lease ended") => {
                "until their leases end"
            }
            told => failed(&name(binary), setting, &HELD_WHILE_FULL, told, failures),
        };
    }
    let run = |call: &'static Call| (call, tokio::spawn(call.run(Arc::clone(&started))));
    let running: Vec<_> = CALLS.iter().map(run).collect();
    let mut outcome = if setting.has_scripts() { "all" } else { "mutexes" };
    for (call, running) in running {
        match running.await.unwrap_or_else(|error| Told::Failed(error.to_string())) {
            Told::Works if setting.has_scripts() || !call.needs_scripts => {}
            Told::Refused if call.needs_scripts && !setting.has_scripts() => {}
            told => outcome = failed(&name(binary), setting, call, told, failures),
        }
    }
    outcome
}

fn failed(
    server: &str,
    setting: Setting,
    call: &Call,
    told: Told,
    failures: &mut Vec<String>,
) -> &'static str {
    let what = match told {
        Told::Works => "it works, and should be refused".to_owned(),
        Told::Refused => "it is refused".to_owned(),
        Told::Failed(what) => what,
    };
    failures.push(format!("{server}, {}: {}: {what}", setting.name(), call.name));
    "FAILS"
}
