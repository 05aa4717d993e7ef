use std::collections::{BTreeMap, BTreeSet};

/// The files in which each package defines a type of a name.
#[derive(Default)]
pub(super) struct Types(BTreeMap<(String, String), BTreeSet<String>>);

impl Types {
    /// Notes the types of a file that is part of a package's code, and no test.
    pub(super) fn read(&mut self, file: &str, text: &str) {
        let Some(package) = package(file) else { return };
        for name in text.lines().filter_map(type_of) {
            let files = self.0.entry((package.to_owned(), name.to_owned())).or_default();
            files.insert(file.to_owned());
        }
    }

    /// One sentence for each name that stands in several files.
    pub(super) fn doubles(&self) -> impl Iterator<Item = String> {
        let doubles = self.0.iter().filter(|(_, files)| files.len() > 1);
        doubles.map(|((_, name), files)| {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            format!("`{name}` is a type in {}", files.join(" and in "))
        })
    }
}

/// The folder of the package that a file is part of; `None` for tests.
fn package(file: &str) -> Option<&str> {
    let (package, below) = file.split_once("src/")?;
    let is_test =
        |part: &str| part == "tests" || part.strip_suffix(".rs").unwrap_or(part).ends_with("tests");
    (!below.split('/').any(is_test) && !package.starts_with("tests/")).then_some(package)
}

/// The name of the type that this line defines, outside of every module and function.
fn type_of(line: &str) -> Option<&str> {
    const SORTS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
    let public = |word: &&str| word.starts_with("pub") || word.ends_with(')');
    let mut words = line.split(' ').skip_while(public);
    SORTS.contains(&words.next()?).then_some(())?;
    words.next()?.split(['<', '(', ';', ':']).next()
}
