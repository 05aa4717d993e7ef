//! The cases that tests are named after, and the list of them.

mod list;
mod names;
mod promises;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};

use crate::cargo::root;
use list::Line;

const LIST: &str = "tests/CASES.md";

const GUARANTEES: &str = "docs/GUARANTEES.md";

/// Which tests show a case, by the case's code.
type Shown = BTreeMap<String, BTreeSet<String>>;

/// Fails when a test is named after a case that is not listed, when no test shows a listed case, when
/// the list names others than the tests there are, or when a promise names no case that shows it;
/// `--write` mends the list.
pub(crate) fn run(write: bool) -> Result<()> {
    let path = root().join(LIST);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let shown = names::in_folder(root())?;
    if write {
        fs::write(&path, list::with_tests(&text, &shown))?;
        return run(false);
    }
    let lines = list::lines(&text);
    let mut wrong = compare(&lines, &shown);
    let guarantees = fs::read_to_string(root().join(GUARANTEES))?;
    wrong.extend(promises::wrong(&guarantees, &lines, root()));
    if wrong.is_empty() {
        println!("{} cases, each with a test", shown.len());
        return Ok(());
    }
    bail!("{LIST} does not fit the tests (`cargo xtask cases --write`):\n{}", wrong.join("\n"))
}

fn compare(lines: &[Line], shown: &Shown) -> Vec<String> {
    let mut wrong = Vec::new();
    for (code, tests) in shown {
        match lines.iter().filter(|line| line.code == *code).count() {
            0 => wrong.push(format!("{code} is not listed, and is in the name of {tests:?}")),
            1 => {}
            times => wrong.push(format!("{code} is listed {times} times")),
        }
    }
    for line in lines {
        match shown.get(&line.code) {
            None => wrong.push(format!("{} is listed, and no test shows it", line.code)),
            Some(tests) if *tests != line.tests => {
                wrong.push(format!("{} is shown by {tests:?}, not {:?}", line.code, line.tests));
            }
            Some(_) if line.demand.trim().is_empty() => {
                wrong.push(format!("{} demands nothing", line.code));
            }
            Some(_) => {}
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cases: &[(&str, &[&str])]) -> Shown {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        cases.iter().map(|(code, tests)| ((*code).to_owned(), names(tests))).collect()
    }

    fn wrong(text: &str, cases: &[(&str, &[&str])]) -> Vec<String> {
        compare(&list::lines(text), &shown(cases))
    }

    #[test]
    fn the_list_fits_the_tests() {
        run(false).unwrap();
    }

    #[test]
    fn what_is_missing_on_either_side_is_found() {
        let list = "# Cases\n\n| case | demands | shown by |\n|---|---|---|\n\
                    | fault-a1 | Much. | `a1_x` |\n";
        assert_eq!(wrong(list, &[("fault-a1", &["a1_x"])]), [] as [String; 0]);
        assert_eq!(wrong(list, &[]).len(), 1);
        assert_eq!(wrong(list, &[("fault-a1", &["a1_x"]), ("fault-a2", &["a2_y"])]).len(), 1);
        assert_eq!(wrong(list, &[("fault-a1", &["a1_y"])]).len(), 1);
        assert_eq!(wrong(list, &[("fault-a1", &["a1_x", "a1_y"])]).len(), 1);
        let twice = format!("{list}| fault-a1 | Much. | `a1_x` |\n");
        assert_eq!(wrong(&twice, &[("fault-a1", &["a1_x"])]).len(), 1);
        let empty = list.replace("Much.", "");
        assert_eq!(wrong(&empty, &[("fault-a1", &["a1_x"])]).len(), 1);
    }

    #[test]
    fn writing_keeps_what_is_demanded() {
        let list = "Words.\n| fault-a1 | Much. |  |\n| fault-a2 | More. | `old` |\n";
        let tests = shown(&[("fault-a1", &["a1_x", "a1_y"]), ("fault-a3", &["a3_z"])]);
        let written = list::with_tests(list, &tests);
        assert_eq!(
            written,
            "Words.\n| fault-a1 | Much. | `a1_x` `a1_y` |\n| fault-a2 | More. |  |\n"
        );
    }
}
