use std::fs;

use anyhow::{Context, Result, bail};

use super::packages::{Package, published};
use crate::cargo::{root, target_dir};
use crate::tools;

/// Where the public API is written down, one file for each package.
const FOLDER: &str = "tests/public-api";

/// Fails when the public API of a library is not what is written down; `--write` writes it down.
/// Needs cargo-public-api and nightly.
pub(crate) fn run(writes: bool) -> Result<()> {
    tools::require("public-api")?;
    let nightly = tools::toolchain("nightly")?;
    for Package { name, .. } in published()? {
        let folder = if name == "redis-locks" { root().to_owned() } else { root().join(&name) };
        if folder.join("src/lib.rs").exists() {
            compare(&name, &nightly, writes)?;
        }
    }
    Ok(())
}

fn compare(name: &str, nightly: &str, writes: bool) -> Result<()> {
    let mut list = tools::with_toolchain(nightly);
    list.args(["public-api", "--package", name, "--all-features", "--color", "never"]);
    // The step `documentation` may run at the same time, and clears the folder that both would use.
    list.env("CARGO_TARGET_DIR", target_dir().join("public-api"));
    list.args(["--omit", "blanket-impls,auto-trait-impls,auto-derived-impls"]);
    let output = list.output().context("cargo-public-api")?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let now = String::from_utf8(output.stdout)?;
    let file = root().join(FOLDER).join(format!("{name}.txt"));
    if writes {
        fs::create_dir_all(root().join(FOLDER))?;
        return Ok(fs::write(file, now)?);
    }
    let before = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let wrong = differences(&before, &now);
    if wrong.is_empty() {
        println!("{name}: {} items", now.lines().count());
        return Ok(());
    }
    bail!(
        "{name} differs; is it meant so? (`cargo xtask public-api --write`)\n{}",
        wrong.join("\n")
    )
}

fn differences(before: &str, now: &str) -> Vec<String> {
    let without = |one: &str, other: &str, sign: char| -> Vec<String> {
        let others: std::collections::BTreeSet<&str> = other.lines().collect();
        let left = one.lines().filter(|line| !others.contains(line));
        left.map(|line| format!("{sign} {line}")).collect()
    };
    [without(before, now, '-'), without(now, before, '+')].concat()
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn both_sides_are_reported() {
        assert_eq!(differences("a\nb\n", "a\nc\n"), ["- b", "+ c"]);
        assert_eq!(differences("a\nb\n", "a\nb\n"), [""; 0]);
    }
}
