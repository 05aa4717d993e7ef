use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A number in a file, read and written in two steps: what a lock is there to protect. Without
/// one, two processes read the same number, and an update is lost.
#[derive(Debug, Clone)]
pub struct SharedCounter {
    path: PathBuf,
}

impl SharedCounter {
    /// A counter in a new file, at zero.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::write(path, "")?;
        let counter = Self::open(path);
        counter.write(0)?;
        Ok(counter)
    }

    /// The counter that another process created.
    pub fn open(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Adds one, in two steps with `between` between them.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn add_one(&self, between: impl FnOnce()) -> io::Result<()> {
        let before = self.read()?;
        between();
        self.write(before + 1)
    }

    /// The number.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self) -> io::Result<u64> {
        fs::read_to_string(&self.path)?.trim().parse().map_err(io::Error::other)
    }

    /// Sets the number, in one write of always the same length: without a lock an update can be
    /// lost, but no reader gets half a number.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, value: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(format!("{value:020}").as_bytes(), 0)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
