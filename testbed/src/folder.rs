use std::path::Path;

use tempfile::{Builder, TempDir};

/// A file system in memory, where the system has one.
const IN_MEMORY: &str = "/dev/shm";

/// Enough for all servers that run at once. In a container it may be far less.
const ROOM: u64 = 1 << 30;

/// A directory for the files of a server. It is in memory where there is room: beside a build, a disk delays
/// an `fsync` for seconds, and meanwhile the server answers nothing.
pub(crate) fn folder() -> TempDir {
    let has_room = rustix::fs::statvfs(IN_MEMORY)
        .is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) >= ROOM);
    let in_memory = has_room.then_some(Path::new(IN_MEMORY));
    let make = |place: &Path| Builder::new().prefix("testbed-").tempdir_in(place).ok();
    let made = in_memory.and_then(make).or_else(|| make(&std::env::temp_dir()));
    made.expect("a temporary directory can be made")
}
