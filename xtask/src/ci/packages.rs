use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{cargo, must_succeed, root, target_dir};

/// A package that others can depend on, or install.
pub(super) struct Package {
    pub(super) name: String,
    /// Without `default`.
    pub(super) features: Vec<String>,
}

/// The published packages, each behind those that it needs.
pub(super) fn published() -> Result<Vec<Package>> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let public: Vec<&Value> = packages.iter().filter(|it| it["publish"].is_null()).collect();
    let mut sorted: Vec<Package> = Vec::new();
    while sorted.len() < public.len() {
        let next = public.iter().find(|package| {
            let done = |name: &Value| sorted.iter().any(|sorted| *name == *sorted.name);
            let ours = |name: &Value| public.iter().any(|package| package["name"] == *name);
            let needs = needs(package);
            !done(&package["name"]) && needs.iter().all(|name| !ours(name) || done(name))
        });
        let package = next.context("packages depend on each other in a circle")?;
        sorted.push(Package {
            name: package["name"].as_str().unwrap_or_default().to_owned(),
            features: features(package),
        });
    }
    Ok(sorted)
}

fn needs(package: &Value) -> Vec<Value> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|needed| needed["kind"] != "dev").map(|needed| needed["name"].clone()).collect()
}

fn features(package: &Value) -> Vec<String> {
    let names = package["features"].as_object().into_iter().flat_map(|features| features.keys());
    names.filter(|name| *name != "default").cloned().collect()
}

/// Packs the published packages, and builds what was packed with the crate of a user, which has nothing else of
/// this repository. No registry has the packages yet.
pub(super) fn check() -> Result<()> {
    // They are built below, all at once.
    let mut package: Command = cargo(&["package", "--quiet", "--no-verify"]);
    // In a working tree files may be changed; what is packed is the same.
    package.arg("--allow-dirty");
    let names: Vec<String> = published()?.into_iter().map(|package| package.name).collect();
    for name in &names {
        package.args(["--package", name]);
    }
    must_succeed(package)?;
    use_packed(&names)
}

/// A workspace of the packages and of a crate that depends on them. Its lock file is that of this repository, so
/// that what is compiled here need not be compiled again.
fn use_packed(names: &[String]) -> Result<()> {
    let user = target_dir().join("user-crate");
    fs::create_dir_all(user.join("src"))?;
    for name in names {
        let packed = target_dir().join(format!("package/{name}-{VERSION}.crate"));
        let mut unpack = Command::new("tar");
        // Files in a package have an old date, and cargo would not compile them again. `m` gives them the present one.
        unpack.arg("-xmzf").arg(packed).arg("-C").arg(&user);
        must_succeed(unpack)?;
        let (from, to) = (user.join(format!("{name}-{VERSION}")), user.join(name));
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::rename(from, to)?;
    }
    let patches: String =
        names.iter().map(|name| format!("{name} = {{ path = {name:?} }}\n")).collect();
    let manifest = format!(
        "[workspace]\nmembers = {names:?}\n[package]\nname = \"user-crate\"\nedition = \"2024\"\n\
         [dependencies]\nredis-locks = \"{VERSION}\"\nredis-locks-tower = \"{VERSION}\"\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n[patch.crates-io]\n{patches}"
    );
    fs::write(user.join("Cargo.toml"), manifest)?;
    fs::write(user.join("src/lib.rs"), USER)?;
    fs::copy(root().join("Cargo.lock"), user.join("Cargo.lock")).context("Cargo.lock")?;
    // The program is not built, because it would take the place of the one of this repository.
    for what in [["test", "--package", "user-crate"], ["check", "--package", "redis-lock-cli"]] {
        let mut build = cargo(&what);
        build.current_dir(&user).env("CARGO_TARGET_DIR", target_dir());
        must_succeed(build)?;
    }
    Ok(())
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

const USER: &str = r#"
use redis_locks::{LockError, redis_lock};

#[redis_lock(key = "order:{id}", wait = "none")]
pub async fn charge(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[tokio::test]
async fn a_function_is_locked() {
    let locks = redis_locks::Locks::in_memory();
    assert_eq!(locks.scope(charge(7)).await, Ok(7));
    let _held = locks.mutex("order:7").acquire().await.unwrap();
    assert!(locks.scope(charge(7)).await.unwrap_err().is_busy());
}
"#;
