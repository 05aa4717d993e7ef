use std::path::Path;

use anyhow::{Result, bail};

use crate::cargo::{cargo, must_succeed, root};
use crate::tools;

/// The parts that decide without I/O, below `redis-lock-core/src`: files by their names and folders
/// with all their files, wherever in the tree they lie. The simulation is a test, not one of them.
const PARTS: [&str; 10] = [
    "lock/**",
    "lease.rs",
    "hold.rs",
    "reaper.rs",
    "decode.rs",
    "decode/**",
    "encode.rs",
    "encode/**",
    "render.rs",
    "memory/**",
];

/// The tests of those parts, which are quick and need no server. The simulation finds more, but
/// takes minutes for each change: try it on changes that these tests miss.
const TESTS: [&str; 8] =
    ["lock::", "lease::", "hold::", "reaper", "decode", "encode", "render", "memory"];

/// Changes the code in small ways, one at a time, and shows which changes no test sees: by
/// cargo-mutants, over the parts without I/O or over the files that are named.
pub(crate) fn run(files: &[String]) -> Result<()> {
    if !tools::has("mutants") {
        bail!("cargo-mutants is not there; `cargo install --locked cargo-mutants` installs it");
    }
    let mut mutants = cargo(&["mutants", "--package", "redis-lock-core"]);
    let parts = match files {
        [] => PARTS.iter().map(|part| format!("redis-lock-core/src/**/{part}")).collect(),
        files => files.iter().map(|file| named(file)).collect::<Result<Vec<_>>>()?,
    };
    for part in parts {
        mutants.args(["--file", &part]);
    }
    mutants
        .args(["--exclude", "**/simulation/**", "--exclude", "**/*tests*"])
        // A mutant that loops for ever is seen; a simulation on a busy machine is not one.
        .args(["--timeout", "240", "--build-timeout", "600"])
        .args(["--output", "target", "--", "--lib", "--"])
        .args(TESTS);
    must_succeed(mutants)
}

/// A file that is there, as cargo-mutants wants it: from the root of the workspace on.
fn named(file: &str) -> Result<String> {
    let below = file.strip_prefix("redis-lock-core/src/").unwrap_or(file);
    let whole = Path::new("redis-lock-core/src").join(below);
    if !root().join(&whole).is_file() {
        bail!("there is no file {}", whole.display());
    }
    Ok(whole.display().to_string())
}
