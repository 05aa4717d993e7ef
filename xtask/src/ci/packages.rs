use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{cargo, must_succeed};

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
    must_succeed(package)
}
