//! Checks that files and functions are short, that no two types of a package have one name, and that
//! all files begin in the same order.

mod functions;
mod imports;
mod names;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::root;
use crate::tracked;
use functions::Function;

/// More lines than this are two concepts in one file.
const FILE: usize = 500;

const FUNCTION: usize = 60;

/// Half of all functions have at most so many lines.
const MEDIAN: usize = 8;

/// Fails, naming the place, when a file or a function is too long, when two modules of a package
/// call different types by one name, or when a file's first lines are in another order.
pub(crate) fn run() -> Result<()> {
    let files = tracked::files(&["*.rs"])?;
    let (wrong, functions) = check(root(), &files)?;
    if wrong.is_empty() {
        let median = median(&functions);
        println!("{} files, {} functions, median {median} lines", files.len(), functions.len());
        return Ok(());
    }
    bail!("too long, of a name that is taken, or out of order:\n{}", wrong.join("\n"))
}

/// What is wrong with these files, and all functions in them.
fn check(root: &Path, files: &[String]) -> Result<(Vec<String>, Vec<Function>)> {
    let mut wrong = Vec::new();
    let mut functions = Vec::new();
    let mut types = names::Types::default();
    for file in files {
        let text = fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
        let lines = text.lines().count();
        if lines > FILE {
            wrong.push(format!("{file} has {lines} lines, more than {FILE}"));
        }
        let found = functions::functions(&text);
        wrong.extend(found.iter().filter(|it| it.lines > FUNCTION).map(|it| {
            format!("{file}:{} `{}` has {} lines, more than {FUNCTION}", it.at, it.name, it.lines)
        }));
        functions.extend(found);
        types.read(file, &text);
        wrong.extend(imports::out_of_order(&text).map(|line| {
            format!("{file}:{line} is out of order: modules, what is handed on, std, others, own")
        }));
    }
    wrong.extend(types.doubles());
    let median = median(&functions);
    if median > MEDIAN {
        wrong.push(format!("half of all functions have more than {median} lines, not {MEDIAN}"));
    }
    Ok((wrong, functions))
}

fn median(functions: &[Function]) -> usize {
    let mut lines: Vec<usize> = functions.iter().map(|it| it.lines).collect();
    lines.sort_unstable();
    lines.get(lines.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a package of these files.
    fn wrong(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        check(folder.path(), &names).unwrap().0
    }

    #[test]
    fn this_repository_is_in_shape() {
        run().unwrap();
    }

    #[test]
    fn a_file_may_have_so_many_lines() {
        assert_eq!(wrong(&[("src/a.rs", &"// x\n".repeat(FILE))]), [] as [String; 0]);
        let found = wrong(&[("src/a.rs", &"// x\n".repeat(FILE + 1))]);
        assert_eq!(found, ["src/a.rs has 501 lines, more than 500"]);
    }

    #[test]
    fn a_function_may_have_so_many_lines() {
        let small = "fn b() {}\nfn c() {}\n";
        let text = |lines: usize| format!("{small}fn a() {{\n{}}}\n", "    x;\n".repeat(lines));
        assert_eq!(wrong(&[("src/a.rs", &text(FUNCTION - 2))]), [] as [String; 0]);
        let found = wrong(&[("src/a.rs", &text(FUNCTION - 1))]);
        assert_eq!(found, ["src/a.rs:3 `a` has 61 lines, more than 60"]);
    }

    #[test]
    fn half_of_all_functions_are_short() {
        let nine = format!("fn a() {{\n{}}}\n", "    x;\n".repeat(7));
        assert_eq!(wrong(&[("src/a.rs", &format!("{nine}fn b() {{}}\n"))]).len(), 1);
        let short = "fn b() {}\nfn c() {}\n";
        assert_eq!(wrong(&[("src/a.rs", &format!("{nine}{short}"))]), [] as [String; 0]);
    }

    #[test]
    fn a_name_stands_for_one_type_of_a_package() {
        let one = ("a/src/one.rs", "pub(crate) struct Entry {\n}\n");
        let found = wrong(&[one, ("a/src/two.rs", "enum Entry {\n}\n")]);
        assert_eq!(found, ["`Entry` is a type in a/src/one.rs and in a/src/two.rs"]);
        // Another package, a test, and another name for a platform.
        for other in ["b/src/two.rs", "a/src/tests/two.rs", "a/src/one_tests.rs", "a/tests/one.rs"]
        {
            assert_eq!(wrong(&[one, (other, "enum Entry {\n}\n")]), [] as [String; 0], "{other}");
        }
        let twice = "#[cfg(unix)]\nstruct Handle;\n#[cfg(windows)]\nstruct Handle;\n";
        assert_eq!(wrong(&[("a/src/one.rs", twice)]), [] as [String; 0]);
    }

    #[test]
    fn files_begin_in_one_order() {
        let ordered = "//! A.\n\n#[cfg(test)]\nmod b;\nmod core;\n\npub use b::B;\n\n\
                       use std::{\n    fs,\n    io,\n};\n\nuse serde::Value;\n\n\
                       use crate::a;\nuse core::Core;\n\nfn c() {}\nuse std::f;\n";
        assert_eq!(wrong(&[("src/a.rs", ordered)]), [] as [String; 0]);
        for (text, line) in [
            ("use std::fs;\n\nmod b;\n", 3),
            ("use crate::a;\n\nuse std::fs;\n", 3),
            ("use serde::Value;\n\n\nuse std::fs;\n", 4),
            ("use std::fs;\nuse serde::Value;\n", 2),
            ("mod b;\n\nuse b::B;\n\nuse std::fs;\n", 5),
            ("use std::fs;\n\npub(crate) use std::io;\n", 3),
        ] {
            let found = wrong(&[("src/a.rs", text)]);
            let named = format!("src/a.rs:{line} is out of order");
            assert!(matches!(&found[..], [one] if one.starts_with(&named)), "{text:?}: {found:?}");
        }
    }
}
