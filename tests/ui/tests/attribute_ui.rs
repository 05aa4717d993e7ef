//! What the attribute says about mistakes, one file for each case of the catalogue.
//!
//! The text of a compiler error belongs to one compiler. On the pinned one it is compared; on any
//! other the same files only have to fail. `TRYBUILD=overwrite` writes the text anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler that wrote the `.stderr` files.
const PINNED: &str = "rustc 1.95.0 ";

/// Set for a run that compares no text: where the files are.
const ELSEWHERE: &str = "REDIS_LOCKS_UI";

#[test]
fn every_mistake_is_reported() {
    if let Ok(folder) = std::env::var(ELSEWHERE) {
        trybuild::TestCases::new().compile_fail(format!("{folder}/*.rs"));
    } else if is_pinned() {
        trybuild::TestCases::new().compile_fail("*.rs");
    } else {
        only_fails();
    }
}

fn is_pinned() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().unwrap();
    String::from_utf8_lossy(&version.stdout).starts_with(PINNED)
}

/// Runs this test again on copies, where writing the text anew does no harm.
fn only_fails() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ui");
    fs::create_dir_all(&folder).unwrap();
    for case in fs::read_dir(".").unwrap().map(|entry| entry.unwrap().path()) {
        if case.extension().is_some_and(|extension| extension == "rs") {
            fs::copy(&case, folder.join(case.file_name().unwrap())).unwrap();
        }
    }
    let this: &Path = &std::env::current_exe().unwrap();
    let run =
        Command::new(this).env(ELSEWHERE, &folder).env("TRYBUILD", "overwrite").status().unwrap();
    assert!(run.success(), "a case compiles that must not");
}
