use std::{
    fs, io,
    path::{Path, PathBuf},
};

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
        fs::write(path, "0")?;
        Ok(Self::open(path))
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

    /// The number. A reader that meets the file half written, as only unlocked ones do, sees 0.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self) -> io::Result<u64> {
        Ok(fs::read_to_string(&self.path)?.trim().parse().unwrap_or(0))
    }

    /// Sets the number.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, value: u64) -> io::Result<()> {
        fs::write(&self.path, value.to_string())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
