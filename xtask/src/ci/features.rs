use anyhow::Result;

use super::packages::{Package, published};
use crate::cargo::{cargo, must_succeed, target_dir};

/// The package whose code depends on features. Others pass theirs on to it.
const WITH_CODE: &str = "redis-lock-core";

/// Checks each published package with no feature and with each.
pub(super) fn check() -> Result<()> {
    check_where(|_, set| set.len() <= 1)
}

/// Checks each two features where code depends on them.
pub(super) fn pairs() -> Result<()> {
    check_where(|name, set| name == WITH_CODE && set.len() == 2)
}

fn check_where(is_wanted: fn(&str, &[String]) -> bool) -> Result<()> {
    for Package { name, features } in published()? {
        for set in sets(&features).into_iter().filter(|set| is_wanted(&name, set)) {
            let set = set.join(",");
            let mut check = cargo(&["clippy", "--quiet", "--no-default-features"]);
            check.args(["--package", &name, "--features", &set]);
            check.env("CARGO_TARGET_DIR", target_dir().join("features"));
            // A warning would be one for users of just these features.
            check.args(["--", "-D", "warnings"]);
            eprintln!("{name} with {}", if set.is_empty() { "no feature" } else { &set });
            must_succeed(check)?;
        }
    }
    Ok(())
}

/// All sets of at most two.
fn sets(features: &[String]) -> Vec<Vec<String>> {
    let mut sets = vec![Vec::new()];
    for (index, one) in features.iter().enumerate() {
        sets.push(vec![one.clone()]);
        sets.extend(features[..index].iter().map(|other| vec![other.clone(), one.clone()]));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn sets_have_at_most_two() {
        let names = ["a", "b", "c"].map(String::from);
        let sets: Vec<String> = sets(&names).iter().map(|set| set.join("")).collect();
        assert_eq!(sets, ["", "a", "b", "ab", "c", "ac", "bc"]);
    }
}
