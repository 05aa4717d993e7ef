use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::target::{exclusively, target_dir};

const SOURCE: &str = include_str!("clock_shim.c");

/// A wall clock that the test moves, forwards and backwards, while the programs run that see it.
///
/// A small library, preloaded into a server or a [`Child`](crate::Child), adds an offset to what
/// the system says. Monotonic clocks are left alone. (`libfaketime` does not get along with
/// servers.)
#[derive(Debug, Clone)]
pub struct ClockShim {
    library: PathBuf,
    offset: Arc<NamedTempFile>,
}

impl ClockShim {
    /// A clock that is right at first; `None` where there is no C compiler to build it, or the
    /// system has no `LD_PRELOAD`: the test should say so with [`skip!`](crate::skip!).
    pub fn new() -> Option<Self> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let library = exclusively("clock-shim", || build(&target_dir().join("clock-shim")))?;
        let offset = NamedTempFile::with_prefix("testbed-clock-").expect("a temporary file");
        let shim = Self { library, offset: Arc::new(offset) };
        shim.set_offset_us(0);
        shim.stand_at(Duration::ZERO);
        Some(shim)
    }

    /// From now on all clocks stand at this time since 1970, those that only run forward as well, until the next
    /// call. With zero they run again.
    pub fn stand_at(&self, time: Duration) {
        #[expect(clippy::cast_possible_truncation, reason = "292,000 years fit")]
        let micros = time.as_micros() as i64;
        let written = self.offset.as_file().write_all_at(&micros.to_ne_bytes(), 8);
        written.expect("the time can be written");
    }

    /// From now on the clock is `seconds` ahead of the real one, or behind it.
    pub fn set(&self, seconds: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "292,000 years fit")]
        self.set_offset_us((seconds * 1e6) as i64);
    }

    fn set_offset_us(&self, offset: i64) {
        let written = self.offset.as_file().write_all_at(&offset.to_ne_bytes(), 0);
        written.expect("the offset can be written");
    }

    /// Lets the process that `command` starts see this clock.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TESTBED_CLOCK", self.offset.path());
    }
}

/// Compiles the library, unless this very source has been compiled before.
fn build(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
    if library.exists() && fs::read_to_string(&source).is_ok_and(|text| text == SOURCE) {
        return Some(library);
    }
    fs::create_dir_all(dir).ok()?;
    File::create(&source).ok()?.write_all(SOURCE.as_bytes()).ok()?;
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .stdin(Stdio::null())
        .status();
    let built = status.is_ok_and(|status| status.success());
    if !built {
        let _ = fs::remove_file(&library);
    }
    built.then_some(library)
}
