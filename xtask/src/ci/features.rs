use std::process::Command;

use anyhow::Result;

use super::packages::{Package, published};
use crate::cargo::{cargo, must_succeed, target_dir};
use crate::tools::{OLDEST, toolchain, with_toolchain};

/// The package whose code depends on features. Others pass theirs on to it.
const WITH_CODE: &str = "redis-lock-core";

/// Checks each published package with no feature and with all, by the oldest compiler that it names. Tests take
/// twice as long to check, and a program that depends on a package does not compile them.
pub(super) fn check() -> Result<()> {
    let oldest = toolchain(OLDEST)?;
    for Package { name, features } in published()? {
        for set in [Vec::new(), features] {
            let mut check = with_toolchain(&oldest);
            check.arg("check").env("CARGO_TARGET_DIR", target_dir().join("oldest-compiler"));
            // A warning would be one for users of just these features.
            check.env("RUSTFLAGS", "-D warnings");
            check_with(check, &name, &set)?;
        }
    }
    Ok(())
}

/// Checks each published package with each feature, and with each two where code depends on them.
pub(super) fn sets() -> Result<()> {
    for Package { name, features } in published()? {
        let most = if name == WITH_CODE { 2 } else { 1 };
        for set in small_sets(&features).into_iter().filter(|set| (1..=most).contains(&set.len())) {
            let mut check = cargo(&["check"]);
            check.env("CARGO_TARGET_DIR", target_dir().join("features"));
            check.env("RUSTFLAGS", "-D warnings");
            check_with(check, &name, &set)?;
        }
    }
    Ok(())
}

fn check_with(mut check: Command, name: &str, features: &[String]) -> Result<()> {
    let set = features.join(",");
    check.args(["--quiet", "--no-default-features", "--package", name, "--features", &set]);
    eprintln!("{name} with {}", if set.is_empty() { "no feature" } else { &set });
    must_succeed(check)
}

/// All sets of at most two.
fn small_sets(features: &[String]) -> Vec<Vec<String>> {
    let mut sets = vec![Vec::new()];
    for (index, one) in features.iter().enumerate() {
        sets.push(vec![one.clone()]);
        sets.extend(features[..index].iter().map(|other| vec![other.clone(), one.clone()]));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::small_sets;

    #[test]
    fn sets_have_at_most_two() {
        let names = ["a", "b", "c"].map(String::from);
        let sets: Vec<String> = small_sets(&names).iter().map(|set| set.join("")).collect();
        assert_eq!(sets, ["", "a", "b", "ab", "c", "ac", "bc"]);
    }
}
