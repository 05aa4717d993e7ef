use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Shown;

/// Where tests are; other folders have sources too, and none of their names are codes.
const FOLDERS: [&str; 7] = [
    "tests",
    "redis-lock-core/src",
    "redis-lock-core/tests",
    "redis-lock-macros/src",
    "redis-lock-cli/src",
    "redis-lock-cli/tests",
    "redis-locks-tower/tests",
];

/// The cases in the names of functions, and of files whose compilation must fail.
pub(super) fn in_folder(root: &Path) -> Result<Shown> {
    let mut shown = Shown::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        if folder.exists() {
            walk(root, &folder, &mut shown)?;
        }
    }
    Ok(shown)
}

fn walk(root: &Path, folder: &Path, shown: &mut Shown) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(root, &path, shown)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let below = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            in_file(&below, &fs::read_to_string(&path)?, shown);
        }
    }
    Ok(())
}

fn in_file(path: &str, text: &str, shown: &mut Shown) {
    let mut add = |name: &str| {
        for code in codes(path, name) {
            shown.entry(code).or_default().insert(name.to_owned());
        }
    };
    if path.starts_with("tests/ui/") {
        let name = path.rsplit('/').next().unwrap_or(path);
        add(name.trim_end_matches(".rs"));
    }
    for line in text.lines() {
        let Some((before, after)) = line.split_once("fn ") else { continue };
        let name: String =
            after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        // Not a word that ends in `fn`, nor a remark.
        if (before.is_empty() || before.ends_with(' ')) && !before.contains("//") {
            add(&name);
        }
    }
}

/// The codes that a name begins with: `c3_c4_a_sentence` has two.
fn codes(path: &str, name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let codes = words.iter().take_while(|word| is_code(word)).count();
    // A name is a sentence: what consists of codes alone is a variable.
    if codes == words.len() {
        return Vec::new();
    }
    let lies_in = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let in_misuse = lies_in(&["tests/misuse"]);
    let about_macro = in_misuse
        || lies_in(&[
            "tests/ui/",
            "tests/attribute",
            "tests/editions",
            "tests/frameworks",
            "redis-lock-macros/",
        ]);
    let catalogue = |code: &str| {
        if about_macro && code.starts_with(['e', 'm']) {
            "macro"
        } else if in_misuse && code.starts_with('h') {
            "hour"
        } else {
            "fault"
        }
    };
    words[..codes].iter().map(|code| format!("{}-{code}", catalogue(code))).collect()
}

/// A letter and a number; or two letters, as of leases that linger.
fn is_code(word: &str) -> bool {
    let long = ["cr", "ik", "lg", "sl"].iter().find_map(|long| word.strip_prefix(long));
    let number = long.or_else(|| word.strip_prefix(|c| matches!(c, 'a'..='n' | 's')));
    number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut shown = Shown::new();
        in_file(path, text, &mut shown);
        shown.into_keys().collect()
    }

    #[test]
    fn codes_are_found_in_names() {
        assert_eq!(found("tests/faults/a.rs", "async fn a10_much() {}"), ["fault-a10"]);
        assert_eq!(found("a.rs", "    pub(crate) fn c3_c4_more() {}"), ["fault-c3", "fault-c4"]);
        assert_eq!(found("a.rs", "fn lg14_lg16_more() {}"), ["fault-lg14", "fault-lg16"]);
        assert_eq!(found("a.rs", "fn sl1_x() {}\nfn cr2_y() {}"), ["fault-cr2", "fault-sl1"]);
        assert_eq!(found("a.rs", "fn plain() {}\n// fn a1_x()\nlet x = a1_y();"), [""; 0]);
        assert_eq!(found("a.rs", "fn a1() {}\nfn z1_is_no_catalogue() {}"), [""; 0]);
    }

    #[test]
    fn the_catalogues_are_distinguished() {
        assert_eq!(found("tests/faults/a.rs", "fn e4_x() {}"), ["fault-e4"]);
        assert_eq!(found("tests/attribute/keys.rs", "fn e04_x() {}"), ["macro-e04"]);
        assert_eq!(found("tests/attribute_promise.rs", "fn n1_x() {}"), ["fault-n1"]);
        assert_eq!(found("tests/ui/e04_unused.rs", "fn main() {}"), ["macro-e04"]);
        assert_eq!(
            found("tests/misuse/a.rs", "fn h1_x() {}\nfn m08_x() {}"),
            ["hour-h1", "macro-m08"]
        );
    }
}
