//! What figures depend on besides the code: the machine, the versions, the day.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use testbed::ServerBinary;

/// The machine and the versions that a run was made with.
#[derive(Serialize)]
pub(crate) struct Setting {
    pub(crate) command: String,
    /// The day it ended.
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) system: String,
    pub(crate) compiler: String,
    /// How many processes wanted to run, on average, before the run and at its end.
    pub(crate) load: (f64, f64),
    pub(crate) servers: Vec<String>,
    pub(crate) libraries: Vec<String>,
}

impl Setting {
    /// The present one; `load` is what there was before.
    pub(crate) fn of(servers: &[ServerBinary], command: &str, before: f64) -> Self {
        let server = |binary: &ServerBinary| {
            let (major, minor, patch) = binary.version();
            format!("{:?} {major}.{minor}.{patch}", binary.flavor())
        };
        Self {
            command: command.to_owned(),
            date: today(),
            processor: processor().unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            system: said_by("uname", &["-sm"]),
            compiler: said_by("rustc", &["--version"]),
            load: (before, load()),
            servers: servers.iter().map(server).collect(),
            libraries: libraries(),
        }
    }
}

/// How many processes want to run, on average over a minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let said = output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    said.unwrap_or_else(|_| "unknown".to_owned())
}

/// The versions of those that are compared, as they are locked.
fn libraries() -> Vec<String> {
    const LOCKED: &str = include_str!("../Cargo.lock");
    const COMPARED: &[&str] = &[
        "redis-lock-core",
        "redis",
        "rslock",
        "rlock",
        "redlock",
        "distributed-lock-redis",
        "tokio",
    ];
    let mut libraries = Vec::new();
    for package in LOCKED.split("[[package]]") {
        let value = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(" = ").trim_matches('"'))
        };
        if let (Some(name), Some(version)) = (value("name"), value("version"))
            && COMPARED.contains(&name)
        {
            libraries.push(format!("{name} {version}"));
        }
    }
    libraries
}

/// The date, as `2026-11-20`.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = date(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// The date of a day since 1970.
fn date(mut day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}
