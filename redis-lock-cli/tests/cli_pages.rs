//! Lines of pages, run as cron, systemd, Kubernetes and a shell would run them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testbed::Server;

const JOBS: &str = include_str!("../../docs/JOBS.md");
const KUBERNETES: &str = include_str!("../../docs/KUBERNETES.md");
const RUNBOOK: &str = include_str!("../../docs/RUNBOOK.md");
const README: &str = include_str!("../README.md");

/// A server, and a directory with `redis-lock` and the commands that the pages lock.
struct Machine {
    server: Server,
    bin: PathBuf,
}

impl Machine {
    fn start(name: &str) -> Self {
        let bin = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&bin);
        fs::create_dir_all(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_redis-lock"), bin.join("redis-lock")).unwrap();
        for command in ["backup", "report", "nightly"] {
            fs::write(bin.join(command), "#!/bin/sh\necho ran\n").unwrap();
            fs::set_permissions(bin.join(command), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { server: Server::start(), bin }
    }

    /// Runs a line of a page by a shell that has only what cron gives, and what the page names.
    fn shell(&self, line: &str) -> Output {
        let line = line.replace("/usr/local/bin/", &format!("{}/", self.bin.display()));
        let path = format!("{}:/usr/bin:/bin", self.bin.display());
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().env("HOME", "/tmp").env("LOGNAME", "someone").env("PATH", path);
        shell.env("REDIS_URL", self.server.url()).arg("-c").arg(line).output().unwrap()
    }

    #[track_caller]
    fn must_run(&self, line: &str) {
        self.server.run::<()>("FLUSHALL");
        let output = self.shell(line);
        let (out, error) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out == b"ran\n", "{line}: {:?} {error}", output.status);
    }
}

#[test]
fn lines_of_crontabs_run_as_cron_runs_them() {
    let machine = Machine::start("cron");
    let lines: Vec<&str> =
        JOBS.lines().filter_map(|line| line.strip_prefix("0 3 * * *  ")).collect();
    assert!(lines.len() > 1, "{lines:?}");
    for line in lines {
        let bare = line.replace("\\%", "");
        assert!(!bare.contains('%'), "cron ends a line at a bare %: {line}");
        machine.must_run(&line.replace("\\%", "%"));
    }
}

/// What a unit of the page starts.
fn starts() -> Vec<&'static str> {
    JOBS.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect()
}

#[test]
fn commands_of_units_run_as_systemd_runs_them() {
    let machine = Machine::start("units");
    assert!(starts().len() > 1);
    for line in starts() {
        let bare = line.replace("%%", "").replace("$$", "");
        assert!(!bare.contains(['%', '$']), "systemd expands % and $: {line}");
        machine.must_run(&line.replace("%%", "%").replace("$$", "$"));
    }
}

#[test]
fn units_are_valid() {
    let machine = Machine::start("verified");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        testbed::skip!("needs systemd-analyze");
    }
    for (at, line) in starts().into_iter().enumerate() {
        let line = line.replace("/usr/local/bin/", &format!("{}/", machine.bin.display()));
        let unit = machine.bin.join(format!("page-{at}.service"));
        fs::write(&unit, format!("[Service]\nType=oneshot\nExecStart={line}\n")).unwrap();
        let verified = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
        let error = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !error.contains("page-"), "{line}: {error}");
    }
}

#[test]
fn the_command_of_the_cron_job_runs() {
    let machine = Machine::start("kubernetes");
    let (_, command) = KUBERNETES.split_once("- >-\n").unwrap();
    let command = command.split("```").next().unwrap();
    machine.must_run(&command.split_whitespace().collect::<Vec<_>>().join(" "));
}

#[test]
fn lines_of_a_shell_are_understood() {
    let machine = Machine::start("shell");
    let mut seen = 0;
    for page in [JOBS, RUNBOOK, README] {
        let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        for line in blocks.flat_map(str::lines) {
            let line = line.split("   #").next().unwrap().trim_end();
            let (more, line) = match line.strip_prefix("redis-lock ") {
                Some(rest) if rest.starts_with("watch") => (" --count 1", line),
                Some(rest) if rest.starts_with("release") && rest.contains("--reason") => {
                    (" -y", line)
                }
                Some(_) => ("", line),
                None => continue,
            };
            let line = format!("{line}{more}").replace("./job", "nightly");
            if line.contains("$token") {
                continue; // of a script, whose earlier line is tried here
            }
            machine.server.run::<()>("FLUSHALL");
            let output = machine.shell(&line);
            let error = String::from_utf8_lossy(&output.stderr);
            // 64 is a usage error; the others are answers about locks.
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{line}: {code:?} {error}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}
