//! What the attribute costs every clean build, beside the attribute that everybody knows.

use std::env;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cargo::{cargo, must_succeed};

/// Builds each attribute with its dependencies from nothing, a few times in turn, and prints the
/// best times: what else the machine does only ever adds.
pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in a folder")?;
    let ours = format!("{{ path = {:?} }}", root.join("redis-lock-macros"));
    let packages = [("redis-lock-macros", ours.as_str()), ("tracing-attributes", "\"0.1\"")];
    let folder = env::temp_dir().join(format!("redis-locks-build-time-{}", std::process::id()));
    let mut best = [Duration::MAX; 2];
    for _ in 0..3 {
        for ((package, source), best) in packages.iter().zip(&mut best) {
            // A package of its own: as part of this workspace it would be built with our features.
            fs::create_dir_all(folder.join("src"))?;
            fs::write(folder.join("src/lib.rs"), "")?;
            fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
            let manifest = format!(
                "[package]\nname = \"from-nothing\"\nedition = \"2024\"\n[workspace]\n\
                 [dependencies]\n{package} = {source}\n"
            );
            fs::write(folder.join("Cargo.toml"), manifest)?;
            let mut build = cargo(&["build", "--quiet", "--offline"]);
            build.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
            let start = Instant::now();
            must_succeed(build)?;
            *best = start.elapsed().min(*best);
            fs::remove_dir_all(&folder)?;
        }
    }
    for ((package, _), best) in packages.iter().zip(best) {
        println!("{package:<20} {:6.2} s from nothing, best of 3", best.as_secs_f64());
    }
    Ok(())
}
