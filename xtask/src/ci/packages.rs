use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{cargo, must_succeed, target_dir};

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

/// Packs the published packages and builds what was packed, each on those before it, which no
/// registry has yet.
pub(super) fn check() -> Result<()> {
    let mut package: Command = cargo(&["package", "--quiet"]);
    // In a working tree files may be changed; what is packed is the same.
    package.arg("--allow-dirty");
    for Package { name, .. } in published()? {
        package.args(["--package", &name]);
    }
    must_succeed(package)?;
    use_packed()
}

/// Uses the packages as a crate of a user does: a build and a test with nothing of this repository.
fn use_packed() -> Result<()> {
    let (packed, user) = (target_dir().join("package"), target_dir().join("user-crate"));
    let path = |name: &str| format!("{:?}", packed.join(format!("{name}-{VERSION}")));
    let patches: String = published()?
        .iter()
        .map(|Package { name, .. }| format!("{name} = {{ path = {} }}\n", path(name)))
        .collect();
    let manifest = format!(
        "[package]\nname = \"user-crate\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         redis-locks = \"{VERSION}\"\ntokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n\
         [patch.crates-io]\n{patches}"
    );
    fs::create_dir_all(user.join("src"))?;
    fs::write(user.join("Cargo.toml"), manifest)?;
    fs::write(user.join("src/lib.rs"), USER)?;
    let mut test = cargo(&["test", "--quiet"]);
    test.current_dir(&user).env("CARGO_TARGET_DIR", user.join("target"));
    must_succeed(test)
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
