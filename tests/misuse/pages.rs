//! What the documents say of each other: the promise, its cases, links between rendered pages, and
//! code that is compiled elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words of a text, without the marks of comments and quotations.
fn words(text: &str) -> String {
    let bare = text.lines().map(|line| line.trim_start_matches("//!").trim_start_matches("> "));
    bare.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn h7_the_promise_is_the_same_sentence_in_four_places() {
    let guarantees = read("docs/GUARANTEES.md");
    let quoted = guarantees.lines().skip_while(|line| !line.starts_with("> "));
    let promise: Vec<&str> = quoted.take_while(|line| line.starts_with("> ")).collect();
    let promise = words(&promise.join("\n"));
    assert!(promise.starts_with("The body never starts without the lock."), "{promise}");
    for place in ["README.md", "src/lib.rs", "src/attribute.md"] {
        assert!(words(&read(place)).contains(&promise), "{place} does not say: {promise}");
    }
}

/// Each item of a list, and each row of a table, of the section with this heading.
fn items(page: &str, heading: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let mut items: Vec<String> = Vec::new();
    for line in lines.take_while(|line| !line.starts_with("## ")) {
        if line.starts_with("- ") || line.starts_with("| ") {
            items.push(line.to_owned());
        } else if let (true, Some(item)) = (line.starts_with("  "), items.last_mut()) {
            item.push(' ');
            item.push_str(line.trim());
        }
    }
    items
}

/// Whether a word of a guarantee names a case of the list, or a test's file. Panics for one that
/// looks like either and is not there.
fn is_evidence(word: &str, cases: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_case = ["fault-", "macro-", "hour-"].iter().any(|it| word.starts_with(it));
    let is_file = word.starts_with("tests/") && word.ends_with(".rs");
    assert!(!is_case || cases.contains(&format!("| {word} |")), "there is no case {word}");
    assert!(!is_file || root().join(word).exists(), "there is no {word}");
    is_case || is_file
}

#[test]
fn h7_each_guarantee_names_the_cases_that_show_it() {
    let (page, cases) = (read("docs/GUARANTEES.md"), read("tests/CASES.md"));
    for heading in ["## Also promised", "## What no lock on Redis can promise"] {
        let items = items(&page, heading);
        assert!(items.len() > 8, "{heading}: {items:?}");
        for item in items.iter().filter(|item| !item.starts_with("| What happens")) {
            let named = item.split_whitespace().filter(|word| is_evidence(word, &cases)).count();
            let says_so = item.contains("| not tested |");
            assert!(named > 0 || says_so, "no case shows this, and it does not say so: {item}");
        }
    }
}

/// The pages that are rendered, by the name of their module.
fn pages() -> BTreeMap<String, String> {
    let guide = read("src/guide.rs");
    let list = guide.split("pages! {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    let words: Vec<&str> = list.split_whitespace().collect();
    let pages = words.chunks(2).map(|pair| (pair[1].to_owned(), pair[0].trim_matches('"')));
    pages.map(|(module, file)| (module, format!("docs/{file}"))).collect()
}

/// A page without its blocks and spans of code.
fn text_of(page: &str) -> String {
    let outside = page.split("```").step_by(2).collect::<String>();
    outside.split('`').step_by(2).collect()
}

fn headings(page: &str) -> BTreeSet<String> {
    let outside = page.split("```").step_by(2).collect::<String>();
    let titles = outside.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    });
    titles.collect()
}

/// The definitions of links, `[name]: target`, at the beginning of lines.
fn definitions(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    pairs.map(|(name, target)| (name.to_owned(), target.to_owned())).collect()
}

/// What is wrong with this target of a link on a rendered page.
fn wrong(target: &str, page: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("data:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let text = match path.strip_prefix("crate::guide::").or_else(|| path.strip_prefix("guide::")) {
        Some(module) => match pages().get(module) {
            Some(file) => read(file),
            None => return Some(format!("{target}: no page is rendered as {module}")),
        },
        None if path.is_empty() => page.to_owned(),
        None if path == "crate::guide" => read("src/guide.rs").replace("//! ", ""),
        // Names of items are checked by rustdoc.
        None if path.contains('/') || path.contains(".md") => {
            return Some(format!("{target}: leads to a file, and nowhere on a rendered page"));
        }
        None => return None,
    };
    let leads = anchor.is_empty() || headings(&text).contains(anchor);
    (!leads).then(|| format!("{target}: there is no such heading"))
}

/// The targets of the links of a page: inline ones, and those by a name that is defined.
fn targets(page: &str, defined: &BTreeMap<String, String>) -> Vec<String> {
    let text = text_of(page);
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = text.split("][").skip(1).filter_map(|rest| rest.split(']').next());
    let named = named
        .map(|name| defined.get(name).cloned().unwrap_or_else(|| format!("{name}.md/undefined")));
    inline.map(ToOwned::to_owned).chain(named).collect()
}

#[test]
fn h7_links_of_rendered_pages_lead_somewhere() {
    let mut defined = definitions(&read("src/links.md"));
    defined.extend(definitions(&read("src/pictures.md")));
    let mut rendered: Vec<String> = pages().into_values().collect();
    rendered.extend(["src/attribute.md".to_owned(), "src/lib.rs".to_owned()]);
    let mut broken = Vec::new();
    for page in &rendered {
        let text = read(page);
        let titles = text.split("```").step_by(2).flat_map(str::lines);
        let titles: Vec<&str> =
            titles.filter(|line| line.starts_with("# ") || line.starts_with("## ")).collect();
        let once: BTreeSet<&&str> = titles.iter().collect();
        assert_eq!(titles.len(), once.len(), "{page} has a heading twice: {titles:?}");
        let targets = targets(&text.replace("//! ", ""), &defined);
        broken.extend(
            targets.iter().filter_map(|it| wrong(it, &text)).map(|it| format!("{page}: {it}")),
        );
        for name in definitions(&text).keys() {
            assert!(defined.contains_key(name), "{page}: src/links.md has no {name}");
        }
    }
    for (name, target) in &defined {
        broken.extend(wrong(target, "").map(|it| format!("src/links.md: {name}: {it}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let stray = "see [x](CHOOSING.md#waiting) and [y][unknown]";
    assert_eq!(targets(stray, &defined).iter().filter_map(|it| wrong(it, stray)).count(), 2);
}

/// Pictures stand in rendered pages as text, because the pages have no folder of files.
#[test]
fn h7_pictures_of_rendered_pages_are_those_of_the_files() {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("docs/pictures"))
        .map(|found| found.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    files.sort();
    let written: String = files
        .iter()
        .map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            let svg = fs::read_to_string(file).unwrap();
            assert!(svg.contains("role=\"img\"") && svg.contains("<title "), "{name}");
            format!("[pictures/{name}]: data:image/svg+xml,{}\n", in_url(&svg))
        })
        .collect();
    if std::env::var("PICTURES").is_ok_and(|it| it == "overwrite") {
        fs::write(root().join("src/pictures.md"), &written).unwrap();
    }
    assert_eq!(read("src/pictures.md"), written, "run this test with PICTURES=overwrite");
}

fn in_url(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/=,;!".contains(&byte);
    let encode =
        |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

fn sources(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push_str(&words(&fs::read_to_string(path).unwrap()));
        }
    }
}

/// The blocks of a page that rustdoc does not compile.
fn ignored(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix("rust,ignore\n")).collect()
}

#[test]
fn h7_code_that_pages_do_not_compile_is_compiled_in_an_application() {
    let mut compiled = String::new();
    // The examples of the crate for tower are compiled as its tests.
    for folder in [
        "examples/apps/src",
        "examples/apps/tests",
        "tests/frameworks/src",
        "redis-locks-tower/src",
    ] {
        sources(&root().join(folder), &mut compiled);
    }
    for page in pages().values() {
        let text = read(page);
        assert!(!text.contains("```ignore"), "{page}: say in which application it is compiled");
        for block in ignored(&text) {
            assert!(compiled.contains(&words(block)), "{page}: no application has this:\n{block}");
        }
    }
    assert_eq!(ignored("x\n```rust,ignore\nlet a;\n```\n"), ["let a;"]);
}

/// The public methods of `LockRequest`.
fn methods() -> BTreeSet<String> {
    let mut methods = BTreeSet::new();
    for entry in fs::read_dir(root().join("redis-lock-core/src/api")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let block =
            text.split("impl LockRequest {").skip(1).filter_map(|rest| rest.split("\n}\n").next());
        let lines = block.flat_map(str::lines).map(|line| line.trim_start().replace("async ", ""));
        let named = lines.filter_map(|line| {
            let rest = line.strip_prefix("pub fn ")?;
            Some(rest.split(['(', '<']).next()?.to_owned())
        });
        methods.extend(named);
    }
    methods
}

#[test]
fn h7_the_page_of_the_attribute_names_every_method_of_a_request() {
    let (page, methods) = (read("src/attribute.md"), methods());
    assert!(methods.len() > 20, "{methods:?}");
    for method in methods {
        let linked = [format!("(LockRequest::{method})"), format!("[`LockRequest::{method}`]")];
        assert!(linked.iter().any(|it| page.contains(it)), "{method} is not named");
    }
}

#[test]
fn h7_pages_that_sell_are_short() {
    for (page, most) in [("README.md", 700), ("docs/VERIFICATION.md", 1_200)] {
        let text = read(page);
        let words = text.split_whitespace().filter(|it| it.contains(char::is_alphanumeric)).count();
        assert!(words <= most, "{page} has {words} words");
    }
}

/// The lines of blocks for a shell, without comments and assignments.
fn shell_lines(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).map(|line| line.split("   #").next().unwrap().trim());
    let commands = lines.filter(|it| !it.is_empty() && !it.starts_with("export "));
    commands.map(ToOwned::to_owned).collect()
}

#[test]
fn h7_each_command_of_a_page_is_run_or_listed_as_not_run() {
    let list = read("CONTRIBUTING.md");
    let list =
        list.split("\nNot run:\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let mut seen = 0;
    let others = ["README.md", "redis-lock-cli/README.md"].map(ToOwned::to_owned);
    for page in pages().into_values().chain(others) {
        // `cli_pages.rs` of the program runs the lines of these.
        let runs = ["docs/JOBS.md", "docs/RUNBOOK.md", "redis-lock-cli/README.md"];
        let runs = runs.contains(&page.as_str());
        for line in shell_lines(&read(&page)) {
            seen += 1;
            let is_run = runs && line.contains("redis-lock ");
            let mut spans = list.split('`').skip(1).step_by(2);
            let is_listed = spans.any(|span| line.contains(span));
            assert!(is_run || is_listed, "{page}: neither run nor listed in CONTRIBUTING: {line}");
        }
    }
    assert!(seen > 15, "{seen}");
}

/// Whether a test parses or runs this block of a page.
fn is_tried(page: &str, language: &str, block: &str) -> bool {
    match (page, language) {
        // `cli_pages.rs` of the program.
        ("docs/JOBS.md", "text") => true,
        // `tests/dashboards.rs`.
        ("docs/KUBERNETES.md", "yaml") => true,
        // `tests/locks/databases.rs`.
        ("docs/TRANSACTIONS.md", "sql") => true,
        // `tests/topologies/rights.rs`, and the comparison of both pages.
        ("docs/SERVER.md" | "docs/PROTOCOL.md", "text") => {
            block.starts_with("ACL SETUSER") || block.trim_start().starts_with('+')
        }
        _ => false,
    }
}

#[test]
fn h7_each_block_that_is_no_code_is_tried_or_listed_as_not_run() {
    let list = read("CONTRIBUTING.md");
    let list =
        list.split("\nNot run:\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let spans: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    let others = ["README.md", "redis-lock-cli/README.md", "src/attribute.md"];
    let mut seen = 0;
    for page in pages().into_values().chain(others.map(ToOwned::to_owned)) {
        let text = read(&page);
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, block) = block.split_once('\n').unwrap_or((block, ""));
            // Rust and lines of a shell have tests above; diagrams are not copied.
            if language.is_empty()
                || ["rust", "sh", "mermaid"].iter().any(|it| language.starts_with(it))
            {
                continue;
            }
            seen += 1;
            let is_listed = spans.iter().any(|span| block.contains(span));
            assert!(
                is_tried(&page, language, block) || is_listed,
                "{page}: neither tried nor listed in CONTRIBUTING:\n{block}"
            );
        }
    }
    assert!(seen > 20, "{seen}");
}
