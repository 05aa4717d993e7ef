use std::collections::BTreeSet;

use super::Shown;

/// A line of the list: `| fault-a1 | What it demands. | `one_test` `another` |`.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) code: String,
    pub(super) demand: String,
    pub(super) tests: BTreeSet<String>,
}

pub(super) fn lines(text: &str) -> Vec<Line> {
    text.lines().filter_map(parse).collect()
}

/// The list with the tests there are, and otherwise as it was.
pub(super) fn with_tests(text: &str, shown: &Shown) -> String {
    let written = text.lines().map(|line| match parse(line) {
        Some(Line { code, demand, .. }) => {
            let tests = shown.get(&code).into_iter().flatten();
            let tests: Vec<String> = tests.map(|test| format!("`{test}`")).collect();
            format!("| {code} | {demand} | {} |\n", tests.join(" "))
        }
        None => format!("{line}\n"),
    });
    written.collect()
}

fn parse(line: &str) -> Option<Line> {
    let inner = line.strip_prefix("| ")?.strip_suffix('|')?;
    let (code, rest) = inner.split_once(" |")?;
    let (demand, tests) = rest.rsplit_once('|')?;
    let (catalogue, number) = code.split_once('-')?;
    if !matches!(catalogue, "fault" | "macro" | "hour")
        || !number.ends_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let tests = tests.split('`').map(str::trim).filter(|word| !word.is_empty());
    Some(Line {
        code: code.to_owned(),
        demand: demand.trim().to_owned(),
        tests: tests.map(ToOwned::to_owned).collect(),
    })
}
