//! Whether the modules of a crate lie above one another without circles.

mod arrows;
mod circles;
mod paths;
mod tree;

use std::path::Path;

use anyhow::{Result, bail};

use crate::cargo::root;
use arrows::{Arrow, arrows};
use tree::Tree;

/// A crate whose modules are checked.
struct Checked {
    folder: &'static str,
    /// The top modules, the lowest first; a module may use what lies lower. One that only tests have
    /// is checked as well when it is listed. Without any, only circles are looked for.
    floors: &'static [&'static str],
}

const CRATES: [Checked; 19] = [
    Checked {
        folder: "redis-lock-core/src",
        floors: &[
            "sync",
            "domain",
            "observe",
            "store",
            "lock",
            "engine",
            "api",
            "simulation",
            "fuzzing",
            "__private_0_1",
        ],
    },
    Checked { folder: "redis-lock-macros/src", floors: &[] },
    Checked { folder: "redis-lock-cli/src", floors: &[] },
    Checked { folder: "redis-locks-tower/src", floors: &[] },
    Checked { folder: "testbed/src", floors: &[] },
    Checked { folder: "testbed/fork/src", floors: &[] },
    Checked { folder: "trials/src", floors: &[] },
    Checked { folder: "xtask/src", floors: &[] },
    Checked { folder: "peers/bench/src", floors: &[] },
    Checked { folder: "peers/faults/src", floors: &[] },
    Checked { folder: "testbed/tests/all", floors: &[] },
    Checked { folder: "tests/attribute", floors: &[] },
    Checked { folder: "tests/concurrency", floors: &[] },
    Checked { folder: "tests/faults", floors: &[] },
    Checked { folder: "tests/misuse", floors: &[] },
    Checked { folder: "tests/kinds", floors: &[] },
    Checked { folder: "tests/locks", floors: &[] },
    Checked { folder: "tests/topologies", floors: &[] },
    Checked { folder: "tests/waiting", floors: &[] },
];

/// Fails, naming the files, when a module uses one of a higher floor, or modules use each other in a
/// circle.
///
/// Circles are looked for among the children of each module, each with all that lies below it; a
/// module and its own children may use each other.
pub(crate) fn run() -> Result<()> {
    let mut found = Vec::new();
    for Checked { folder, floors } in CRATES {
        let wrong = check(&root().join(folder), floors)?;
        println!("{folder}: {}", if wrong.is_empty() { "in order" } else { "not in order" });
        found.extend(wrong.into_iter().map(|wrong| format!("{folder}: {wrong}")));
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!("{} arrows that must not be:\n{}", found.len(), found.join("\n"))
}

/// What is wrong with the modules below `folder`.
fn check(folder: &Path, floors: &[&str]) -> Result<Vec<String>> {
    let tree = Tree::read(folder, floors)?;
    let arrows = arrows(&tree);
    let mut found = Vec::new();
    if !floors.is_empty() {
        found.extend(without_floor(&tree, floors));
        found.extend(arrows.iter().filter_map(|arrow| upwards(&tree, arrow, floors)));
    }
    found.extend(circles::circles(&tree, &arrows));
    found.dedup();
    Ok(found)
}

fn without_floor(tree: &Tree, floors: &[&str]) -> Vec<String> {
    let tops = tree.modules.iter().filter(|module| module.path.len() == 1);
    tops.filter(|module| !floors.contains(&module.path[0].as_str()))
        .map(|module| format!("{} is on none of the floors {floors:?}", module.file))
        .collect()
}

/// The sentence about an arrow from a lower floor to a higher one.
fn upwards(tree: &Tree, arrow: &Arrow, floors: &[&str]) -> Option<String> {
    let floor = |module: usize| {
        let top = tree.modules[module].path.first()?;
        floors.iter().position(|floor| floor == top)
    };
    let (from, to) = (floor(arrow.from)?, floor(arrow.to)?);
    (from < to).then(|| format!("{} lies above: {}", floors[to], arrow.show(tree)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::check;

    const FLOORS: &[&str] = &["low", "middle", "high"];

    /// What is wrong in a crate of these files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        check(folder.path(), FLOORS).unwrap()
    }

    const LIB: (&str, &str) = ("lib.rs", "mod low; mod middle; mod high; pub use high::High;");

    #[test]
    fn arrows_down_are_fine() {
        let high = "use crate::{low::Low, middle::Middle}; pub struct High(Low, Middle);";
        let files = [
            LIB,
            ("low.rs", "pub struct Low;"),
            ("middle.rs", "use super::low; pub struct Middle(low::Low);"),
            ("high.rs", high),
        ];
        assert_eq!(found(&files), [] as [String; 0]);
    }

    #[test]
    fn an_arrow_up_is_found_with_both_files() {
        for low in [
            "use crate::high::High;",
            "use crate::High;",
            "use crate::{self as root, high};",
            "fn f(_: &crate::high::High) {}",
            "fn f() -> impl Sized { format!(\"{:?}\", crate::high::High) }",
            "use super::high::*;",
            "mod inner { fn f(_: super::super::high::High) {} }",
        ] {
            let files = [LIB, ("low.rs", low), ("middle.rs", ""), ("high.rs", "pub struct High;")];
            let found = found(&files);
            assert_eq!(found.len(), 1, "{low}: {found:?}");
            assert!(found[0].contains("low.rs") && found[0].contains("high.rs"), "{found:?}");
        }
    }

    #[test]
    fn a_name_is_followed_to_where_it_is_defined() {
        // The path in `low` names `middle`, but the item is defined in `high`.
        let files = [
            LIB,
            ("low.rs", "use crate::middle::High;"),
            ("middle.rs", "pub(crate) use crate::high::High;"),
            ("high.rs", "pub struct High;"),
        ];
        let found = found(&files);
        assert!(
            found.iter().any(|it| it.contains("low.rs") && it.contains("high.rs")),
            "{found:?}"
        );
    }

    #[test]
    fn tests_may_use_everything() {
        let low =
            "#[cfg(test)] use crate::high::High; #[cfg(test)] mod tests { use crate::high::*; }
            #[cfg(all(test, unix))] fn f(_: crate::High) {} #[cfg(test)] mod elsewhere;";
        let files = [
            LIB,
            ("low/mod.rs", low),
            ("low/elsewhere.rs", "use crate::high::High;"),
            ("middle.rs", "struct S { #[cfg(test)] seen: crate::high::High }"),
            ("high.rs", "pub struct High;"),
        ];
        assert_eq!(found(&files), [] as [String; 0]);
        let not_a_test = "#[cfg(not(test))] use crate::high::High;";
        let files =
            [LIB, ("low.rs", not_a_test), ("middle.rs", ""), ("high.rs", "pub struct High;")];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn a_floor_that_only_tests_have_is_checked_too() {
        let lib = ("lib.rs", "mod low; mod middle; #[cfg(test)] mod high; #[cfg(test)] mod tests;");
        let wrong = |low, high| {
            let files = [("low.rs", low), ("middle.rs", ""), ("high.rs", high), ("tests.rs", "")];
            found(&[&[lib], &files[..]].concat())
        };
        assert_eq!(wrong("pub struct Low;", "use crate::low::Low;"), [] as [String; 0]);
        let macros = "fn f() -> bool { crate::high::is() }";
        assert_eq!(wrong(macros, "pub fn is() -> bool { true }").len(), 1);
    }

    #[test]
    fn a_circle_below_one_floor_is_found_once() {
        let files = [
            LIB,
            ("low.rs", ""),
            ("high.rs", ""),
            ("middle/mod.rs", "mod a; mod b; mod c; pub struct Middle;"),
            ("middle/a.rs", "use super::{Middle, b::B}; pub struct A;"),
            ("middle/b/mod.rs", "mod inner; pub struct B;"),
            ("middle/b/inner.rs", "use crate::middle::c::C;"),
            ("middle/c.rs", "use super::a; pub struct C(a::A);"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        for file in ["middle/a.rs", "middle/b/inner.rs", "middle/c.rs"] {
            assert!(found[0].contains(file), "{found:?}");
        }
    }

    #[test]
    fn a_module_without_a_floor_is_named() {
        let lib = ("lib.rs", "mod low; mod middle; mod high; mod aside;");
        let files = [lib, ("low.rs", ""), ("middle.rs", ""), ("high.rs", ""), ("aside.rs", "")];
        let found = found(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("aside.rs"), "{found:?}");
    }
}
