use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::external::{on_path, say};
use crate::target::{exclusively, target_dir};

/// A Python that can `import redis`: the system's, else a virtual environment below `target/`
/// into which redis-py is installed now. `None` where there is neither, and the test should say
/// so with [`skip!`](crate::skip!).
pub fn python_with_redis() -> Option<PathBuf> {
    python_with("redis", "import redis.lock")
}

/// The same with `redlock-py`.
pub fn python_with_redlock() -> Option<PathBuf> {
    python_with("redlock-py", "import redlock")
}

/// A Python with a package, which this import finds.
fn python_with(package: &str, import: &str) -> Option<PathBuf> {
    let system = on_path("python3")?;
    if can(&system, import) {
        return Some(system);
    }
    exclusively("python", || {
        let dir = target_dir().join("python");
        let python = dir.join("bin/python");
        if can(&python, import) {
            return Some(python);
        }
        say(&format!("installing {package} below {}", dir.display()));
        let made = runs(Command::new(&system).args(["-m", "venv"]).arg(&dir));
        let installed =
            made && runs(Command::new(&python).args(["-m", "pip", "install", "--quiet", package]));
        (installed && can(&python, import)).then_some(python)
    })
}

fn can(python: &Path, import: &str) -> bool {
    python.exists() && runs(Command::new(python).args(["-c", import]).stderr(Stdio::null()))
}

fn runs(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|it| it.success())
}
