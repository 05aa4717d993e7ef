use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::deadline::eventually;
use crate::external::{on_path, succeeds};
use crate::folder::folder;
use crate::program::Program;

/// A database server of the test's own, in a temporary directory, reached through a socket there and through its own
/// client program. It ends on drop.
#[derive(Debug)]
pub struct Database {
    client: Vec<String>,
    _server: Program,
    _dir: TempDir,
}

impl Database {
    /// Postgres; `None` where it is not installed.
    pub fn postgres() -> Option<Self> {
        let (initdb, postgres) = (of_postgres("initdb")?, of_postgres("postgres")?);
        let client = of_postgres("psql")?;
        let dir = directory();
        let (at, data) = (path(dir.path()), path(&dir.path().join("data")));
        let made = ["-D", &data, "-U", "test", "-A", "trust", "--no-sync", "--no-instructions"];
        assert!(succeeds(unprivileged(&initdb).args(made)), "initdb failed");
        let mut server = unprivileged(&postgres);
        server.args(["-D", &data, "-k", &at, "-c", "listen_addresses=", "-c", "fsync=off"]);
        let words = ["-X", "-v", "ON_ERROR_STOP=1", "-At", "-h", &at, "-U", "test", "postgres"];
        Some(Self::start(server, &client, &words, dir))
    }

    /// MariaDB; `None` where it is not installed.
    pub fn mariadb() -> Option<Self> {
        let (install, client) = (on_path("mariadb-install-db")?, on_path("mariadb")?);
        let server = on_path("mariadbd").or_else(|| existing("/usr/sbin/mariadbd".into()))?;
        let dir = directory();
        let data = format!("--datadir={}", path(&dir.path().join("data")));
        let socket = format!("--socket={}", path(&dir.path().join("s")));
        let made =
            ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
        assert!(succeeds(unprivileged(&install).args(made)), "mariadb-install-db failed");
        let mut start = unprivileged(&server);
        start.args(["--no-defaults", &data, &socket, "--skip-networking"]);
        start.arg(format!("--pid-file={}", path(&dir.path().join("pid"))));
        let words = ["--no-defaults", &socket, "--user=root", "--batch", "--skip-column-names"];
        Some(Self::start(start, &client, &words, dir))
    }

    fn start(mut server: Command, client: &Path, words: &[&str], dir: TempDir) -> Self {
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let client = [path(client)].into_iter().chain(words.iter().map(|&word| word.to_owned()));
        let this = Self { client: client.collect(), _server: Program::spawn(server), _dir: dir };
        let answers = || this.try_run("SELECT 1;").is_ok();
        eventually(Duration::from_secs(60), "the database answers", answers);
        this
    }

    /// What the client program prints for these statements.
    pub fn run(&self, statements: &str) -> String {
        self.try_run(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    fn try_run(&self, statements: &str) -> Result<String, String> {
        let mut client = Command::new(&self.client[0]);
        client.args(&self.client[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.stderr(Stdio::piped()).spawn().map_err(|it| it.to_string())?;
        if let Some(mut stdin) = client.stdin.take() {
            // A client that has ended says why on its standard error.
            let _ = stdin.write_all(statements.as_bytes());
        }
        let output = client.wait_with_output().map_err(|it| it.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

/// A directory that an unprivileged user may write to.
fn directory() -> TempDir {
    let dir = folder();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("it is ours");
    dir
}

/// A program that does not run as root, which these servers refuse.
fn unprivileged(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]).arg(program);
    command.current_dir("/").env("HOME", "/");
    command
}

/// Distributions keep these programs in a folder for each version.
fn of_postgres(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.filter_map(|version| existing(version.path().join("bin").join(name)));
    found.max().or_else(|| on_path(name))
}

fn existing(path: PathBuf) -> Option<PathBuf> {
    path.exists().then_some(path)
}

fn path(path: &Path) -> String {
    path.to_str().expect("a path of letters").to_owned()
}
