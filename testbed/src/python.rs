use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::external::{on_path, say};
use crate::target::{exclusively, target_dir};

/// A Python that can `import redis`: the system's, else a virtual environment below `target/`
/// into which redis-py is installed now. `None` where there is neither, and the test should say
/// so with [`skip!`](crate::skip!).
pub fn python_with_redis() -> Option<PathBuf> {
    let system = on_path("python3")?;
    if can_import_redis(&system) {
        return Some(system);
    }
    exclusively("python", || {
        let dir = target_dir().join("python");
        let python = dir.join("bin/python");
        if can_import_redis(&python) {
            return Some(python);
        }
        say(&format!("installing redis-py below {}", dir.display()));
        let made = runs(Command::new(&system).args(["-m", "venv"]).arg(&dir));
        let installed =
            made && runs(Command::new(&python).args(["-m", "pip", "install", "--quiet", "redis"]));
        (installed && can_import_redis(&python)).then_some(python)
    })
}

fn can_import_redis(python: &Path) -> bool {
    python.exists()
        && runs(Command::new(python).args(["-c", "import redis.lock"]).stderr(Stdio::null()))
}

fn runs(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|it| it.success())
}
