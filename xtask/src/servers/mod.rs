//! Runs every public call on each server that can be had, in each of its settings.

mod calls;
mod settings;

use std::fmt::Write;

use anyhow::{Result, bail};
use testbed::ServerBinary;

use calls::{Call, Told};
use settings::{Setting, Started};

/// A server as PROTOCOL.md names it, and where it comes from.
struct Version {
    name: &'static str,
    binary: fn() -> Option<ServerBinary>,
}

const VERSIONS: [Version; 5] = [
    Version { name: "Redis 5.0", binary: ServerBinary::redis_5 },
    Version { name: "Redis 6.0", binary: ServerBinary::redis_6_0 },
    Version { name: "Redis 6.2", binary: ServerBinary::redis_6 },
    Version { name: "this machine's", binary: || Some(ServerBinary::any()) },
    Version { name: "Valkey 9", binary: || ServerBinary::valkey(9) },
];

/// Prints a table of versions and settings; fails when a call fails that is not refused by name.
pub(crate) fn run(wanted: &[String]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut table = heading();
    let mut failures = Vec::new();
    for version in VERSIONS {
        if !wanted.is_empty() && !wanted.iter().any(|it| version.name.ends_with(it.as_str())) {
            continue;
        }
        let Some(binary) = (version.binary)() else {
            let _ = writeln!(table, "| {} | could not be had: untested |", version.name);
            continue;
        };
        eprintln!("{binary}");
        let _ = write!(table, "| {binary} |");
        for setting in Setting::ALL {
            let cell = runtime.block_on(try_all(&binary, setting, &mut failures));
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    println!("{table}");
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("{} calls failed:\n{}", failures.len(), failures.join("\n")),
    }
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
    let Some(started) = Started::new(binary, setting) else { return "not on this version" };
    let (mut refused, mut failed) = (0, 0);
    for call in Call::ALL.into_iter().filter(|call| is_tried(*call, setting)) {
        match call.run(&started).await {
            Told::Works => {}
            Told::Refused => refused += 1,
            Told::Failed(what) => {
                failed += 1;
                failures.push(format!("{binary}, {}: {call:?}: {what}", setting.name()));
            }
        }
    }
    match (failed, refused) {
        (0, 0) => "all",
        (0, _) => "mutexes",
        _ => "FAILS",
    }
}

/// A full server grants nothing; what counts there is what is held already.
fn is_tried(call: Call, setting: Setting) -> bool {
    let is_full = matches!(setting, Setting::Full | Setting::FullWithoutScripts);
    is_full == (call == Call::HeldWhileFull)
}
