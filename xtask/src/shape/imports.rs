//! The order of a file's first lines: its modules, its re-exports, then its imports from std, from
//! other crates and from its own.

use std::collections::BTreeSet;

/// A part of a file's beginning, in the order in which they come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Modules,
    HandedOn,
    Std,
    Others,
    Own,
}

#[expect(clippy::struct_excessive_bools, reason = "facts about a line")]
struct Declared<'a> {
    number: usize,
    /// What is declared or used, and whether others see it.
    is_module: bool,
    is_public: bool,
    path: &'a str,
    follows_a_gap: bool,
}

/// The number of the first line that stands in a wrong place.
pub(super) fn out_of_order(text: &str) -> Option<usize> {
    let lines = beginning(text);
    let modules = lines.iter().filter(|line| line.is_module).map(|line| line.path).collect();
    let parts: Vec<Part> = lines.iter().map(|line| part(line, &modules)).collect();
    let wrong = |at: &usize| {
        let (before, here) = (parts[at - 1], parts[*at]);
        here < before || (here != before && !lines[*at].follows_a_gap)
    };
    (1..lines.len()).find(wrong).map(|at| lines[at].number)
}

/// The `mod` and `use` lines before the first item.
fn beginning(text: &str) -> Vec<Declared<'_>> {
    let mut found = Vec::new();
    let (mut is_open, mut follows_a_gap) = (false, false);
    for (index, line) in text.lines().enumerate() {
        if is_open || line.starts_with("//") || line.starts_with("#") {
            is_open = is_open && !line.ends_with([';', ']']);
            continue;
        }
        if line.is_empty() {
            follows_a_gap = true;
            continue;
        }
        let Some(mut read) = read(line) else { break };
        read.number = index + 1;
        read.follows_a_gap = std::mem::take(&mut follows_a_gap);
        is_open = !line.ends_with(';');
        found.push(read);
    }
    found
}

fn read(line: &str) -> Option<Declared<'_>> {
    let is_public = line.starts_with("pub");
    let (before, rest) = match line.split_once("mod ") {
        Some((before, rest)) if rest.ends_with(';') && !before.contains("use ") => (before, rest),
        _ => line.split_once("use ")?,
    };
    let is_visibility = before.is_empty() || (before.starts_with("pub") && before.ends_with(' '));
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let is_module =
        line.len() - rest.len() >= 4 && line[..line.len() - rest.len()].ends_with("mod ");
    let line =
        Declared { number: 0, is_module, is_public, path: &rest[..end], follows_a_gap: false };
    is_visibility.then_some(line)
}

fn part(line: &Declared<'_>, modules: &BTreeSet<&str>) -> Part {
    match line.path {
        _ if line.is_module => Part::Modules,
        _ if line.is_public => Part::HandedOn,
        "crate" | "super" | "self" => Part::Own,
        path if modules.contains(path) => Part::Own,
        "std" | "core" | "alloc" => Part::Std,
        _ => Part::Others,
    }
}
