//! Each promise of docs/GUARANTEES.md names the cases that show it.

use std::path::Path;

use super::list::Line;

/// Where each bullet is a promise.
const CHAPTER: &str = "## Also promised";

/// What is wrong with the promises: one that names neither a case nor a test, and names of cases and
/// tests that do not exist.
pub(super) fn wrong(guarantees: &str, cases: &[Line], root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let promises = bullets(guarantees);
    if promises.is_empty() {
        wrong.push(format!("there is no promise below {CHAPTER:?}"));
    }
    for promise in promises {
        let title = promise.trim_start_matches("- ").split("**").nth(1).unwrap_or(&promise);
        let (codes, files) = named(&promise);
        if codes.is_empty() && files.is_empty() {
            wrong.push(format!("{title:?} names no case"));
        }
        let is_listed = |code: &&str| cases.iter().any(|line| line.code == **code);
        let codes = codes.into_iter().filter(|code| !is_listed(code));
        let files = files.into_iter().filter(|file| !root.join(file).exists());
        wrong.extend(codes.chain(files).map(|it| format!("{title:?} names {it}: there is none")));
    }
    wrong
}

/// The bullets of the chapter, each as one line.
fn bullets(guarantees: &str) -> Vec<String> {
    let chapter = guarantees.split_once(CHAPTER).map_or("", |(_, rest)| rest);
    let chapter = chapter.split("\n## ").next().unwrap_or(chapter);
    let mut bullets: Vec<String> = Vec::new();
    for line in chapter.lines() {
        match bullets.last_mut() {
            _ if line.starts_with("- ") => bullets.push(line.to_owned()),
            Some(last) if line.starts_with("  ") => *last = format!("{last} {}", line.trim()),
            _ => {}
        }
    }
    bullets
}

/// The codes of cases, and the files of tests, that a promise names at its end.
fn named(promise: &str) -> (Vec<&str>, Vec<&str>) {
    let end = promise.rfind("Cases: ").or_else(|| promise.rfind("Tests: "));
    let rest = end.map_or("", |at| &promise[at..]);
    let words = rest.split([' ', ',', ';', '`']).map(|word| word.trim_end_matches('.'));
    let is_code = |word: &&str| {
        word.split_once('-').is_some_and(|(what, _)| matches!(what, "fault" | "macro" | "hour"))
    };
    let codes = words.clone().filter(is_code).collect();
    let files = rest.split('`').skip(1).step_by(2).filter(|word| word.contains('/')).collect();
    (codes, files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_promise_that_names_no_case_or_one_that_is_not_there_is_found() {
        let line = |code: &str| Line {
            code: code.to_owned(),
            demand: String::new(),
            tests: BTreeSet::new(),
        };
        let text = format!(
            "{CHAPTER}\n\n- **One.** It\n  holds. Cases: fault-a1, fault-b2.\n- **Two.** It holds.\n\
             - **Three.** Tests: `tests/nowhere.rs`.\n\n## Others\n\n- **Four.**\n"
        );
        assert_eq!(
            wrong(&text, &[line("fault-a1")], Path::new("/")),
            [
                "\"One.\" names fault-b2: there is none",
                "\"Two.\" names no case",
                "\"Three.\" names tests/nowhere.rs: there is none",
            ]
        );
    }
}
