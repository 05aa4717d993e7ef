//! What the attribute says about mistakes, one file for each case.
//!
//! Each case is checked by rustc directly, against the libraries that cargo has built for this test.
//! A cargo build for each of them would take minutes.
//!
//! The text of a compiler error belongs to one compiler. On the pinned one it is compared; on any
//! other the same files only have to fail. `BLESS=1` writes the text anew, `UI=e77` runs the cases
//! whose names contain that.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The compiler that wrote the `.stderr` files.
const PINNED: &str = "rustc 1.95.0 ";

/// Where the cases are, seen from the workspace.
const FOLDER: &str = "tests/ui";

/// What rustc says at the end about everything before.
const SUMMARIES: [&str; 3] =
    ["error: aborting due to", "For more information about", "Some errors have detailed"];

/// The first line of a case that compiles with a warning.
const WARNS: &str = "// compiles with a warning";

#[test]
fn every_mistake_is_reported() {
    let compiler = Compiler::found();
    let cases = cases();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = compiler.judge(case) {
                        failures.lock().unwrap().push(format!("{}: {failure}", case.display()));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_text_has_a_case() {
    let of = |extension: &str| -> BTreeSet<PathBuf> {
        let paths = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
    };
    // A case without a text fails when it is compared.
    let mut texts = of("stderr").into_iter().map(|text| text.with_extension("rs"));
    let cases = of("rs");
    assert_eq!(texts.find(|text| !cases.contains(text)), None, "a text is left of a case");
}

fn cases() -> Vec<PathBuf> {
    let wanted = std::env::var("UI").unwrap_or_default();
    let paths = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name());
    let paths =
        paths.map(PathBuf::from).filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let mut cases: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().contains(&wanted)).collect();
    cases.sort();
    assert!(!cases.is_empty(), "no case is called {wanted}");
    cases
}

struct Compiler {
    rustc: PathBuf,
    is_pinned: bool,
    /// `--extern` and `-L`.
    libraries: Vec<String>,
    /// What differs between machines, and how it is written in the texts.
    paths: Vec<(String, &'static str)>,
}

impl Compiler {
    fn found() -> Self {
        let rustc = PathBuf::from(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let asked = |argument: &[&str]| {
            let output = Command::new(&rustc).args(argument).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let sysroot = asked(&["--print", "sysroot"]);
        let version = asked(&["--version", "--verbose"]);
        let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
        let paths = vec![
            (format!("{FOLDER}/"), ""),
            (format!("{}/lib/rustlib/src/rust/library", sysroot.trim()), "$RUST"),
            (format!("/rustc/{}/library", commit.unwrap_or_default()), "$RUST"),
        ];
        let is_pinned = version.starts_with(PINNED);
        Self { rustc, is_pinned, libraries: libraries(), paths }
    }

    fn judge(&self, case: &Path) -> Result<(), String> {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let output = Command::new(&self.rustc)
            .args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata"])
            .args(["--color", "never", "--diagnostic-width", "140", "-A", "dead_code"])
            .arg("-o")
            .arg(folder.join(case.with_extension("rmeta")))
            .args(&self.libraries)
            .arg(Path::new(FOLDER).join(case))
            // The libraries were built there, so rustc finds the sources that it quotes.
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap())
            .output()
            .unwrap();
        let said = self.normal(&String::from_utf8_lossy(&output.stderr), case);
        let warns = fs::read_to_string(case).unwrap().starts_with(WARNS);
        if output.status.success() != warns {
            let happened = if warns { "does not compile" } else { "compiles" };
            return Err(format!("{happened}, and must not:\n{said}"));
        }
        let file = case.with_extension("stderr");
        if !self.is_pinned {
            return Ok(());
        }
        if std::env::var_os("BLESS").is_some() {
            fs::write(file, said).unwrap();
            return Ok(());
        }
        let expected = fs::read_to_string(file).unwrap_or_default();
        if said == expected {
            return Ok(());
        }
        Err(format!("expected:\n{expected}\nbut rustc says:\n{said}"))
    }

    /// Without what other changes move: paths of this machine, line numbers of other files, counts, and
    /// the width of the margin, which follows from the line numbers.
    fn normal(&self, said: &str, case: &Path) -> String {
        let own = format!(" {}:", case.display());
        let mut lines: Vec<String> = Vec::new();
        let mut is_foreign = false;
        for line in said.lines() {
            let mut line = line.to_owned();
            for (path, name) in &self.paths {
                line = line.replace(path, name);
            }
            let start = line.trim_start();
            let text = start.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = &start[..start.len() - text.len()];
            let text = text.trim_start();
            line = if start.starts_with("--> ") || start.starts_with("::: ") {
                is_foreign = !start.contains(&own);
                let end = start.find(".rs:").filter(|_| is_foreign);
                format!("   {}", end.map_or(start, |end| &start[..end + 3]))
            } else if !number.is_empty() || text.starts_with(['|', '=']) && line.starts_with(' ') {
                format!("{:>3} {text}", if is_foreign { "" } else { number })
            } else if start.starts_with("and ") && start.ends_with(" others") {
                "            and $N others".into()
            } else if line.starts_with("      ") {
                format!("            {start}")
            } else {
                line
            };
            let is_summary = SUMMARIES.iter().any(|it| line.starts_with(it));
            if !is_summary && !line.ends_with(" emitted") {
                lines.push(line);
            }
        }
        format!("{}\n", lines.join("\n").trim_end())
    }
}

/// Asks cargo where it has put what this test depends on.
fn libraries() -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--tests", "--package", "ui", "--message-format", "json", "--quiet"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let library = |name: &str| {
        let target = format!("\"name\":\"{name}\"");
        let mut built = messages.lines().filter(|line| line.contains(&target));
        let found = built.find_map(|line| line.split('"').find(|it| it.ends_with(".rlib")));
        found.unwrap_or_else(|| panic!("cargo has built no {name}")).to_owned()
    };
    let mut arguments = Vec::new();
    for name in ["redis_locks", "tokio"] {
        arguments.extend(["--extern".into(), format!("{name}={}", library(name))]);
    }
    let facade = library("redis_locks");
    let folder = Path::new(&facade).parent().unwrap();
    let folder = if folder.ends_with("deps") { folder.into() } else { folder.join("deps") };
    arguments.extend(["-L".into(), format!("dependency={}", folder.display())]);
    arguments
}
