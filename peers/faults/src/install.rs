//! Gets the libraries of other languages through the clients of their registries.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::contender::{Contender, Language};

const PYTHON: [&str; 2] = ["redis", "python-redis-lock"];
const JAVASCRIPT: [&str; 3] = ["redlock", "redis-semaphore", "ioredis"];

/// What can be run, and with which versions.
pub(crate) struct Installed {
    python: Result<PathBuf, String>,
    /// The directory with `node_modules`.
    javascript: Result<PathBuf, String>,
    versions: Vec<(String, String)>,
}

impl Installed {
    /// Installs what is missing, below the target directory.
    pub(crate) fn everything() -> Self {
        let (python, javascript) = (python(), javascript());
        let mut versions = rust_versions();
        if let Ok(python) = &python {
            let mut list = Command::new(python);
            list.args(["-m", "pip", "list", "--format=freeze"]);
            let listed = said(&mut list).unwrap_or_default();
            versions.extend(listed.lines().filter_map(|line| pair(line.split_once("==")?)));
        }
        if let Ok(dir) = &javascript {
            for name in JAVASCRIPT {
                let file = dir.join("node_modules").join(name).join("package.json");
                let text = std::fs::read_to_string(file).unwrap_or_default();
                let line =
                    text.lines().find_map(|line| line.trim().strip_prefix("\"version\": \""));
                let version = line.unwrap_or_default().trim_end_matches(['"', ',']);
                versions.push((format!("{name} (npm)"), version.to_owned()));
            }
        }
        Self { python, javascript, versions }
    }

    /// Why a library can't be run here, if it can't.
    pub(crate) fn lacks(&self, contender: Contender) -> Option<String> {
        match contender.language() {
            Language::Rust => None,
            Language::Python => self.python.as_ref().err().cloned(),
            Language::JavaScript => self.javascript.as_ref().err().cloned(),
        }
    }

    /// Its version, with that of its driver where this is a package of its own.
    pub(crate) fn version(&self, contender: Contender) -> String {
        let names: &[&str] = match contender {
            Contender::Ours | Contender::OursQuorum => &["redis-lock-core"],
            Contender::Rslock => &["rslock"],
            Contender::Rlock => &["rlock"],
            Contender::RedlockRs => &["redlock"],
            Contender::DistributedLock => &["distributed-lock-redis"],
            Contender::RedisPy => &["redis"],
            Contender::PythonRedisLock => &["python-redis-lock", "redis"],
            Contender::RedlockJs => &["redlock (npm)", "ioredis (npm)"],
            Contender::RedisSemaphore => &["redis-semaphore (npm)", "ioredis (npm)"],
        };
        let is_python = contender.language() == Language::Python;
        let version = |name: &&str| {
            // `redis` is the driver of Rust too, which comes first.
            let mut found = self.versions.iter().filter(|(known, _)| known == name);
            let found = if is_python { found.next_back() } else { found.next() };
            found.map_or("?", |(_, version)| version.as_str())
        };
        let shown = |(number, name): (usize, &&str)| match number {
            0 => version(name).to_owned(),
            _ => format!("{} {}", name.trim_end_matches(" (npm)"), version(name)),
        };
        names.iter().enumerate().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// What starts one worker.
    pub(crate) fn command(&self, contender: Contender) -> Result<Command> {
        Ok(match (contender.language(), &self.python, &self.javascript) {
            (Language::Rust, ..) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("worker");
                command
            }
            (Language::Python, Ok(python), _) => {
                let mut command = Command::new(python);
                command.arg(python.with_file_name("worker.py"));
                command
            }
            (Language::JavaScript, _, Ok(dir)) => {
                let mut command = Command::new("node");
                command.arg(dir.join("worker.js"));
                command
            }
            _ => bail!("it is not installed"),
        })
    }
}

/// A Python of its own with the libraries, or why there is none.
fn python() -> Result<PathBuf, String> {
    let dir = testbed::target_dir().join("verify/python");
    let python = dir.join("bin/python");
    if !python.exists() {
        must_run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
    }
    let install = ["-m", "pip", "install", "--quiet"];
    must_run(Command::new(&python).args(install).args(PYTHON))?;
    // A copy, so that a run is not disturbed by one who works on it.
    let copy =
        std::fs::write(python.with_file_name("worker.py"), include_str!("../workers/worker.py"));
    copy.map_err(|error| error.to_string())?;
    Ok(python)
}

fn javascript() -> Result<PathBuf, String> {
    let dir = testbed::target_dir().join("verify/javascript");
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let package = dir.join("package.json");
    if !package.exists() {
        std::fs::write(&package, "{}").map_err(|error| error.to_string())?;
    }
    let mut install = Command::new("npm");
    install.args(["install", "--silent"]).args(JAVASCRIPT).current_dir(&dir);
    must_run(&mut install)?;
    let copy = std::fs::write(dir.join("worker.js"), include_str!("../workers/worker.js"));
    copy.map_err(|error| error.to_string())?;
    Ok(dir)
}

fn must_run(command: &mut Command) -> Result<(), String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it could not be installed: {shown} ended with {status}")),
        Err(error) => Err(format!("it could not be installed: {shown}: {error}")),
    }
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// The versions that were built, from the lock file.
fn rust_versions() -> Vec<(String, String)> {
    let lock = include_str!("../Cargo.lock");
    let packages = lock.split("[[package]]").filter_map(|package| {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_matches(['=', ' ', '"']))
        };
        pair((field("name")?, field("version")?))
    });
    packages.collect()
}

fn pair((name, version): (&str, &str)) -> Option<(String, String)> {
    Some((name.trim().to_owned(), version.trim().to_owned()))
}
