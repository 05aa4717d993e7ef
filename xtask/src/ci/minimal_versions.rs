use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::packages::published;
use crate::cargo::{must_succeed, root, target_dir};
use crate::{tools, tracked};

/// Checks the published packages with the lowest versions of their dependencies that their manifests
/// allow. Needs nightly, whose cargo can choose them.
pub(super) fn check() -> Result<()> {
    let nightly = tools::toolchain("nightly")?;
    let folder = target_dir().join("oldest-dependencies");
    copy_to(&folder)?;
    let mut lock = tools::with_toolchain(&nightly);
    lock.args(["-Z", "direct-minimal-versions", "generate-lockfile", "--quiet"]);
    must_succeed({
        lock.current_dir(&folder);
        lock
    })?;
    let mut check = tools::with_toolchain(&nightly);
    check.args(["check", "--quiet", "--workspace", "--all-features"]).current_dir(&folder);
    check.env("CARGO_TARGET_DIR", folder.join("target"));
    must_succeed(check)
}

/// A copy of the workspace that has the published packages alone, without what their tests need: only
/// what users build is to be old.
fn copy_to(folder: &Path) -> Result<()> {
    for name in tracked::files(&[])? {
        let (from, to) = (root().join(&name), folder.join(&name));
        let mut content = fs::read(&from)?;
        if name.ends_with("Cargo.toml") {
            content = for_users(&String::from_utf8(content)?, &members()?).into_bytes();
        }
        fs::create_dir_all(to.parent().unwrap_or(folder))?;
        fs::write(to, content)?;
    }
    Ok(())
}

/// The folders of the published packages that are members of the workspace.
fn members() -> Result<Vec<PathBuf>> {
    let folders = published()?.into_iter().map(|package| PathBuf::from(package.name));
    Ok(folders.filter(|folder| root().join(folder).is_dir()).collect())
}

/// A manifest without development dependencies, benches, and other members.
fn for_users(manifest: &str, members: &[PathBuf]) -> String {
    let mut keeps = true;
    let mut lines = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            keeps = !line.starts_with("[dev-dependencies") && line != "[[bench]]";
        }
        if line.starts_with("members = ") {
            lines.push(format!("members = {members:?}"));
        } else if keeps && !line.starts_with("testbed =") {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::for_users;

    #[test]
    fn what_only_tests_need_goes() {
        let manifest = "[workspace]\nmembers = [\"a\", \"b\"]\n[dependencies]\nc = \"1\"\n\
                        [dev-dependencies]\nd = \"1\"\n[[bench]]\nname = \"e\"\n[lints]\nf = true\n";
        let expected =
            "[workspace]\nmembers = [\"a\"]\n[dependencies]\nc = \"1\"\n[lints]\nf = true\n";
        assert_eq!(for_users(manifest, &["a".into()]), expected);
    }
}
