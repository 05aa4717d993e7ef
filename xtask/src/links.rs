//! Checks that everything that the documents link to or name exists.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::cargo::root;
use crate::tracked;

/// Documents that name files of the code: each of these must be there.
const MAPS: [&str; 2] = ["docs/ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Fails, naming the document, when a link leads nowhere, or when a file that a map of the code names
/// is not there, or lacks the item that the map says is in it.
pub(crate) fn run() -> Result<()> {
    let files = Files::new(tracked::files(&[])?);
    let mut wrong = Vec::new();
    let documents: Vec<&String> = files.all.iter().filter(|name| name.ends_with(".md")).collect();
    for document in &documents {
        let text = read(document)?;
        wrong.extend(links(&text).into_iter().filter_map(|link| broken(document, link, &files)));
        if MAPS.contains(&document.as_str()) {
            let named = text.lines().flat_map(|line| missing(line, &files));
            wrong.extend(named.map(|what| format!("{document}: {what}")));
        }
    }
    if wrong.is_empty() {
        println!("{} documents point to what is there", documents.len());
        return Ok(());
    }
    bail!("what documents point to is not there:\n{}", wrong.join("\n"))
}

/// The files of the repository and their folders.
struct Files {
    all: Vec<String>,
    folders: BTreeSet<String>,
}

impl Files {
    fn new(all: Vec<String>) -> Self {
        let ends = |name: &String| {
            let slashes = name.match_indices('/').map(|(at, _)| name[..at].to_owned());
            slashes.collect::<Vec<_>>()
        };
        let folders = all.iter().flat_map(ends).collect();
        Self { all, folders }
    }

    fn has(&self, path: &str) -> bool {
        path.is_empty() || self.folders.contains(path) || self.all.iter().any(|name| name == path)
    }

    /// The files and folders whose path ends like this.
    fn ending(&self, path: &str) -> Vec<&String> {
        let path = path.trim_end_matches('/');
        let ends = |name: &&String| {
            name.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        self.all.iter().chain(&self.folders).filter(ends).collect()
    }
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| name.to_owned())
}

/// The targets of `[…](target)` and of definitions, `[…]: target`, but for those that are no files:
/// of other hosts, of rustdoc's items, and pictures in place.
fn links(text: &str) -> Vec<&str> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let lines = text.lines().filter(|line| line.starts_with('['));
    let defined = lines.filter_map(|line| Some(line.split_once("]: ")?.1));
    let is_file = |target: &&str| !target.contains("::") && !target.contains([' ', '%']);
    let targets = inline.chain(defined).filter(is_file);
    targets.filter(|target| !target.contains("://") && !target.starts_with("data:")).collect()
}

/// The sentence about a link that leads nowhere.
fn broken(document: &str, link: &str, files: &Files) -> Option<String> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { document.to_owned() } else { beside(document, path) };
    if !files.has(&target) {
        return Some(format!("{document}: there is no {target} for `{link}`"));
    }
    let leads = heading.is_empty() || headings(&read(&target).ok()?).contains(heading);
    (!leads).then(|| format!("{document}: {target} has no heading for `{link}`"))
}

/// The path of what `link` names, as seen from `document`.
fn beside(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The headings of a document, as links name them.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| slug(line.trim_start_matches('#').trim())).collect()
}

fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The things that this line of a map names and that do not exist: files, and items that are said
/// to be `in` a file, or that stand in brackets behind it.
fn missing(line: &str, files: &Files) -> Vec<String> {
    let mut missing = Vec::new();
    // The text between the spans of code, and the spans, alternately.
    let parts: Vec<&str> = line.split('`').collect();
    for (at, span) in parts.iter().enumerate().filter(|(at, _)| at % 2 == 1) {
        if !is_path(span) {
            continue;
        }
        let found = files.ending(span);
        if found.is_empty() {
            missing.push(format!("there is no `{span}`"));
        }
        let has = |item: &str| {
            let name = item.rsplit("::").next().unwrap_or(item);
            found.iter().any(|file| read(file).is_ok_and(|text| text.contains(name)))
        };
        let items = items(&parts, at).into_iter().filter(|item| !is_path(item) && !has(item));
        missing.extend(items.map(|item| format!("`{span}` has no `{item}`")));
    }
    missing
}

/// The items that are said to be in the file at `at`: `item` and `item` in `file`, or
/// `file` (`item`, `item`).
fn items<'a>(parts: &[&'a str], at: usize) -> Vec<&'a str> {
    let mut items = Vec::new();
    let mut before = at;
    let joins = |before: usize| {
        let word = parts[before - 1].trim();
        word == "in" && before == at || matches!(word, "and" | ",") && before != at
    };
    while before > 1 && joins(before) {
        before -= 2;
        items.push(parts[before]);
    }
    let mut after = at + 1;
    let opens = |after: usize| match parts[after] {
        " (" => after == at + 1,
        ", " => after != at + 1,
        _ => false,
    };
    while after + 1 < parts.len() && opens(after) {
        items.push(parts[after + 1]);
        after += 2;
    }
    items
}

/// Whether a span of code names a file or a folder of this repository.
fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let ends = [".rs", ".lua", ".md", ".toml", "/"].iter().any(|end| span.ends_with(end));
    plain && ends && span.len() > 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        Files::new(vec!["docs/A.md".to_owned(), "xtask/src/links.rs".to_owned()])
    }

    #[test]
    fn the_documents_point_to_what_is_there() {
        run().unwrap();
    }

    #[test]
    fn a_link_leads_to_a_file_and_its_heading() {
        let text = "[a](A.md) [b](../xtask/src) [c](https://elsewhere/x) [d](B.md)";
        let wrong: Vec<_> = links(text)
            .into_iter()
            .filter_map(|link| broken("docs/A.md", link, &files()))
            .collect();
        assert_eq!(wrong, ["docs/A.md: there is no docs/B.md for `B.md`"]);
        assert!(headings("# A\n## Add `x`, or y\n").contains("add-x-or-y"));
    }

    #[test]
    fn what_a_map_names_is_there() {
        for line in ["`src/links.rs`", "`xtask/`", "`is_path` and `Files::has` in `links.rs`"] {
            assert_eq!(missing(line, &files()), [] as [String; 0], "{line}");
        }
        assert_eq!(missing("`inks.rs`", &files()), ["there is no `inks.rs`"]);
        // In two parts, because the file that is searched is this one.
        let item = ["Files::lack", "ing"].concat();
        let none = format!("`links.rs` has no `{item}`");
        assert_eq!(
            missing(&format!("`{item}` in `links.rs`"), &files()),
            std::slice::from_ref(&none)
        );
        assert_eq!(missing(&format!("`links.rs` (`run`, `{item}`)"), &files()), [none]);
    }
}
