use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Where cargo builds: all that tests install or generate goes below it.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        |dir| {
            // Cargo resolves a relative one against the workspace, tests run in their package.
            Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir)
        },
    )
}

/// Runs `work` while no other process runs the same: test processes start all at once, and each
/// would install what is missing.
pub(crate) fn exclusively<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let dir = target_dir();
    fs::create_dir_all(&dir).expect("the target directory can be created");
    let path = dir.join(format!("{name}.lock"));
    let file = File::create(&path).expect("a lock file can be created in the target directory");
    flock(&file, FlockOperation::LockExclusive).expect("a lock file can be locked");
    work()
}
