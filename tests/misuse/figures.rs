//! Figures of pages are those of the measurements that they link.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn cells(row: &str) -> Vec<String> {
    let inside = row.strip_prefix('|').unwrap_or(row).trim_end().trim_end_matches('|');
    inside.split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The head and the rows of the first table after this text.
fn table(page: &str, after: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let (_, rest) = page.split_once(after).unwrap_or_else(|| panic!("there is no {after}"));
    let mut lines = rest.lines().skip_while(|line| !line.starts_with('|'));
    let head = cells(lines.next().unwrap());
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    (head, rows.collect())
}

/// The section of the bench that the first cell of a row links.
fn anchor(cell: &str) -> Option<&str> {
    cell.split("results.md#").nth(1)?.split(')').next()
}

/// By section of the bench and library.
fn compared() -> BTreeMap<(String, String), String> {
    let (libraries, rows) = table(&read("docs/COMPARISON.md"), "## Speed");
    let mut compared = BTreeMap::new();
    for row in rows {
        let section = anchor(&row[0]).unwrap_or_else(|| panic!("{row:?} has no link")).to_owned();
        for (library, figure) in libraries.iter().zip(&row).skip(1) {
            // Of two rows of one section the first is the one that README may have.
            compared.entry((section.clone(), library.clone())).or_insert_with(|| figure.clone());
        }
    }
    compared
}

#[test]
fn h7_figures_of_the_comparison_are_those_of_the_bench() {
    let bench = read("docs/bench/results.md");
    let (libraries, rows) = table(&read("docs/COMPARISON.md"), "## Speed");
    let mut seen = 0;
    for row in rows {
        let anchor = anchor(&row[0]).unwrap();
        let sections = bench.split("\n## ").filter(|it| slug(it.lines().next().unwrap()) == anchor);
        let section: String = sections.collect();
        assert!(!section.is_empty(), "no section is called {anchor}");
        for (library, figure) in libraries.iter().zip(&row).skip(1) {
            if figure.is_empty() || figure.contains("does not wait") || figure.contains("blocks") {
                continue;
            }
            let measured = section.lines().find(|line| line.starts_with(&format!("| {library} |")));
            let measured = measured.unwrap_or_else(|| panic!("{anchor} has no row of {library}"));
            assert!(measured.contains(&format!("**{figure}**")), "{library}, {anchor}: {figure}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn h7_figures_of_readme_and_server_are_those_of_the_comparison() {
    let (compared, readme, server) = (compared(), read("README.md"), read("docs/SERVER.md"));
    let figure =
        |section: &str, library: &str| &compared[&(section.to_owned(), library.to_owned())];
    let (libraries, rows) = table(&readme, "## Compared with");
    let mut seen = 0;
    for row in rows.iter().filter(|row| anchor(&row[0]).is_some()) {
        let section = anchor(&row[0]).unwrap();
        for (library, shown) in libraries.iter().zip(row).skip(1) {
            let library = library.trim_matches(['[', ']']);
            assert_eq!(shown, figure(section, library), "README: {library}, {section}");
            seen += 1;
        }
    }
    assert_eq!(seen, 15);
    let pair = "lock-and-unlock-one-task";
    let hand_over = "hand-over-to-a-waiter-in-another-process";
    let bare = figure(pair, "bare redis driver");
    let many = figure("lock-and-unlock-64-tasks-on-64-keys", "bare redis driver");
    let said = format!("The bare driver takes {bare} for a pair, and reaches {many}.");
    assert!(readme.contains(&said), "README does not say: {said}");
    for figure in [figure(pair, "redis-locks"), figure(hand_over, "redis-locks"), bare] {
        assert!(server.contains(figure.as_str()), "SERVER lacks {figure}");
    }
}

/// The faults, by library, in which a column of the results is above zero.
fn faults_with(column: &str) -> BTreeMap<String, Vec<String>> {
    let results = read("docs/verify/results.md");
    let (head, _) = table(&results, "## Overview");
    let sections = results.split("\n## ").filter(|it| it.contains("| bodies at once |"));
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (fault, section) in head[1..].iter().zip(sections) {
        let (columns, rows) = table(section, "");
        let at = columns.iter().position(|it| it == column).unwrap();
        for row in rows {
            let faults = found.entry(row[0].clone()).or_default();
            if row[at].parse::<u64>().unwrap() > 0 {
                faults.push(fault.replace("long-body", "long body").replace("clock-jump", "clock"));
            }
        }
    }
    found
}

/// `redlock 2.0.0 (Rust)` is `redlock (Rust)` in the results.
fn without_version(library: &str) -> String {
    let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    library.split(' ').filter(|word| !is_version(word)).collect::<Vec<_>>().join(" ")
}

/// A cell such as `3 faults: pause, restart, clock`, `1: pause (with fences none)`, or `none`.
fn is_said(cell: &str, faults: &[String]) -> bool {
    if faults.is_empty() {
        return cell == "none";
    }
    let Some((number, names)) = cell.split_once(": ") else { return false };
    let names = names.split(" (").next().unwrap();
    let named = names.starts_with("as ") || names == faults.join(", ");
    number.trim_end_matches(" faults") == faults.len().to_string() && named
}

#[test]
fn h7_faults_of_the_pages_are_those_of_the_results() {
    let columns = ["bodies at once", "of these untold", "lost updates"].map(faults_with);
    let (_, rows) = table(&read("docs/COMPARISON.md"), "## Under the same faults");
    let mut compared = 0;
    for row in rows.iter().filter(|row| !row[0].contains("fences compared")) {
        let library = without_version(&row[0]);
        for (column, cell) in columns.iter().zip(&row[3..6]) {
            assert!(
                is_said(cell, &column[&library]),
                "{library}: {cell}, not {:?}",
                column[&library]
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 3 * 10);

    let (libraries, rows) = table(&read("README.md"), "## Compared with");
    let count = |column: usize, library: &str| columns[column][library].len();
    for (row, column) in [("two bodies ran at once in", 0), ("a caller was not told in", 1)] {
        let row = rows.iter().find(|it| it[0].contains(row)).unwrap();
        let ours = (count(column, "redis-locks"), count(column, "redis-locks, quorum"));
        let said =
            if column == 0 { format!("{}, as a quorum {}", ours.0, ours.1) } else { "0".into() };
        assert_eq!(row[1].trim_matches('*'), said);
        for (library, shown) in libraries.iter().zip(row).skip(2) {
            let library = library.trim_matches(['[', ']']).replace("redlock", "redlock (Rust)");
            assert_eq!(shown.trim_matches('*'), count(column, &library).to_string(), "{library}");
        }
    }
}
