//! What a reader sees before anything runs.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
}

#[test]
fn h6_examples_import_the_crate_that_a_user_has() {
    let mut pages = vec![root().join("README.md")];
    for folder in ["src", "docs", "examples", "redis-lock-core/src"] {
        files(&root().join(folder), "md", &mut pages);
        files(&root().join(folder), "rs", &mut pages);
    }
    assert!(pages.len() > 100, "{}", pages.len());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let is_code = page.extension().is_some_and(|it| it == "rs")
            && !page.starts_with(root().join("examples"));
        let shown = text.lines().filter(|line| {
            let line = line.trim_start();
            !is_code || line.starts_with("///") || line.starts_with("//!")
        });
        for line in shown {
            assert!(!line.contains("redis_lock_core"), "{}: {line}", page.display());
        }
    }
}

#[test]
fn h6_the_page_of_locks_begins_with_how_to_get_one() {
    let page = fs::read_to_string(root().join("redis-lock-core/src/api/locks.rs")).unwrap();
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("/// # ")).collect();
    assert_eq!(headings.first(), Some(&"How to get one"), "{headings:?}");
}

/// There is no public address yet, and a wrong one is worse than none.
#[test]
fn h6_no_manifest_names_an_address() {
    let mut manifests = vec![root().join("Cargo.toml")];
    for package in ["redis-lock-core", "redis-lock-macros", "redis-lock-cli"] {
        manifests.push(root().join(package).join("Cargo.toml"));
    }
    for manifest in manifests {
        let text = fs::read_to_string(&manifest).unwrap();
        for key in ["repository", "homepage", "documentation"] {
            let named = text.lines().find(|line| line.starts_with(key));
            assert_eq!(named, None, "{}", manifest.display());
        }
    }
}
