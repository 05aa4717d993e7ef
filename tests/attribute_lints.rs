//! E99: clippy, with all of its groups, says nothing about an annotated function that it does not
//! say about the plain one.

use std::collections::BTreeSet;
use std::process::Command;

/// Lines of the fixture whose options are code of the user's own, or that are there only with the
/// attribute: what is said there is about that code.
fn is_about_the_users_code(line: usize) -> bool {
    let source = include_str!("editions/cases.rs");
    let lines: Vec<&str> = source.lines().collect();
    let bound = lines.iter().position(|line| line.contains("pub async fn bound")).unwrap();
    let text = lines[line - 1];
    text.contains("n + 1") || text.contains("|_| 0") || (bound..bound + 4).contains(&(line - 1))
}

fn lints(features: &[&str]) -> BTreeSet<(usize, String)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let groups = ["all", "pedantic", "nursery", "restriction", "cargo"];
    let flags = groups.iter().flat_map(|group| ["-W".to_owned(), format!("clippy::{group}")]);
    let output = Command::new(cargo)
        .args(["clippy", "--offline", "--package", "edition-2024", "--message-format", "short"])
        .args(features)
        .arg("--")
        .args(flags)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let found = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("cases.rs:")?;
        let mut parts = rest.splitn(4, ':');
        let number = parts.next()?.parse().ok()?;
        Some((number, parts.nth(2)?.trim().to_owned()))
    });
    let found: BTreeSet<_> = found.collect();
    assert!(found.len() > 20, "clippy found nothing to say, so it did not run:\n{text}");
    found
}

#[test]
fn e99_clippy_has_nothing_to_say_about_our_tokens() {
    let plain = lints(&["--no-default-features"]);
    let ours = lints(&[]);
    let new: Vec<_> =
        ours.difference(&plain).filter(|(line, _)| !is_about_the_users_code(*line)).collect();
    assert!(new.is_empty(), "{new:#?}");
}
