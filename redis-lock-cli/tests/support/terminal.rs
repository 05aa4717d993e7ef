//! A terminal with a shell in it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::{ffi, thread};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use testbed::{Program, Server};

use super::scene::Scene;

/// What the keys send.
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";

pub(crate) struct Terminal {
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    pub(crate) shell: Program,
}

impl Terminal {
    /// An interactive shell with job control in the scene's folder. `$LOCK` is the program.
    pub(crate) fn open(server: &Server, scene: &Scene) -> Self {
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"]);
        Self::with(server, scene, shell)
    }

    /// This program in it, which makes it its own.
    pub(crate) fn with(server: &Server, scene: &Scene, mut program: Command) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let name = ffi::OsStr::from_bytes(name.as_bytes());
        let screen = || {
            let mut options = File::options();
            std::os::unix::fs::OpenOptionsExt::custom_flags(
                options.read(true).write(true),
                i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap(),
            );
            Stdio::from(options.open(name).unwrap())
        };
        program.stdin(screen()).stdout(screen()).stderr(screen());
        program.env("REDIS_URL", server.url()).env("LOCK", env!("CARGO_BIN_EXE_redis-lock"));
        program.env("HISTFILE", "").env_remove("REDIS_LOCKS_NAMESPACE");
        scene.prepare(&mut program);
        let shell = Program::spawn(program);
        let keys = File::from(keys);
        let mut output = keys.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { keys, shown, shell }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// All that it has shown.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }
}
