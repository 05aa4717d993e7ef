mod builder;
mod inspect;

pub use builder::ServerBuilder;
pub(crate) use inspect::{ADMIN, ADMIN_RIGHTS};

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::binary::ServerBinary;
use crate::clock_shim::ClockShim;
use crate::host::Host;
use crate::port::Port;
use crate::signal::{continue_process, is_stopped, kill_process, stop_process};
use crate::watchdog::Watchdog;

const READY: Duration = Duration::from_secs(30);

/// A server of the test's own, on a free port, in a directory of its own; killed on drop, and
/// its log printed when the test panics.
///
/// ```no_run
/// let server = testbed::Server::start();
/// // … locks on server.url() …
/// server.assert_clean();
/// ```
#[derive(Debug)]
pub struct Server {
    binary: ServerBinary,
    dir: TempDir,
    host: Host,
    port: u16,
    /// All ports that it listens on, kept while it is down as well.
    _ports: Vec<Port>,
    arguments: Vec<String>,
    shim: Option<ClockShim>,
    tls_port: Option<u16>,
    mode: Mode,
    running: Mutex<Option<Running>>,
    admin: Mutex<Option<inspect::Admin>>,
}

/// What the process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A server by itself.
    #[default]
    Alone,
    /// A cluster of one node, which takes all slots.
    OnlyNode,
    /// One node of several, which `Cluster` makes a cluster.
    Node,
    /// It keeps watch over servers; its options are in the file `sentinel.conf`.
    Sentinel,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Dropped, which ends it, before anything else is done with the process.
    watchdog: Watchdog,
}

impl Server {
    /// Any server this machine has, without persistence.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with other settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    /// `redis://127.0.0.1:{port}`; with another address on an [`Island`](crate::Island).
    pub fn url(&self) -> String {
        format!("redis://{}:{}", self.host.address(), self.port)
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The address over the unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// `rediss://127.0.0.1:{port}`; panics without [`ServerBuilder::tls`].
    pub fn tls_url(&self) -> String {
        let port = self.tls_port.expect("the server was started with tls()");
        format!("rediss://127.0.0.1:{port}")
    }

    /// Where TLS is spoken, if it is.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// The TCP port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of the driver, for the URL.
    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("the server's own URL is valid")
    }

    /// The program that runs.
    pub fn binary(&self) -> &ServerBinary {
        &self.binary
    }

    /// The directory where it keeps its data.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The id of the running process; panics when it was killed.
    pub fn pid(&self) -> u32 {
        self.lock_running().as_ref().expect("the server is running").child.id()
    }

    /// Whether it was started, and neither killed since nor frozen.
    pub fn is_live(&self) -> bool {
        self.lock_running().as_ref().is_some_and(|running| !is_stopped(running.child.id()))
    }

    /// Freezes it: connections stay open, nothing is answered.
    pub fn freeze(&self) {
        stop_process(self.pid());
    }

    /// Ends [`freeze`](Self::freeze); what arrived meanwhile is executed now.
    pub fn thaw(&self) {
        continue_process(self.pid());
    }

    /// Ends the process at once, as a crash would.
    pub fn kill9(&self) {
        self.forget_admin();
        if let Some(Running { mut child, watchdog }) = self.lock_running().take() {
            drop(watchdog);
            kill_process(child.id());
            let _ = child.wait();
        }
    }

    /// Kills it if it runs, and starts it again on the same port and data.
    pub fn restart(&self) {
        self.kill9();
        if let Err(reason) = self.launch() {
            panic!("{} did not start again: {reason}\n{}", self.binary, self.log());
        }
    }

    /// Like [`restart`](Self::restart), but returns while the data are still being loaded.
    pub fn restart_loading(&self) {
        self.kill9();
        if let Err(reason) = self.launch_until(Self::is_up) {
            panic!("{} did not start again: {reason}\n{}", self.binary, self.log());
        }
    }

    /// Cuts the last `bytes` off the append-only file, as a power failure can; only while the
    /// server is down, and only where it was started with [`ServerBuilder::aof`].
    pub fn truncate_aof(&self, bytes: u64) {
        assert!(self.lock_running().is_none(), "truncating the file of a running server");
        let path = self.aof_file();
        let file = OpenOptions::new().write(true).open(&path).expect("the AOF can be opened");
        let length = file.metadata().expect("the AOF has a length").len();
        file.set_len(length.saturating_sub(bytes)).expect("the AOF can be cut");
    }

    fn aof_file(&self) -> PathBuf {
        let Ok(files) = fs::read_dir(self.dir().join("appendonlydir")) else {
            // Before 7.0 it is one file.
            return self.dir().join("appendonly.aof");
        };
        files
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
            .expect("an append-only file is there")
    }

    fn socket(&self) -> PathBuf {
        self.dir().join("socket")
    }

    fn log_file(&self) -> PathBuf {
        self.dir().join("log")
    }

    fn lock_running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self) -> Command {
        let mut command = self.host.command(self.binary.path());
        command.current_dir(self.dir());
        if self.mode == Mode::Sentinel {
            command.args(["sentinel.conf", "--sentinel"]);
            return command;
        }
        command
            .args(["--port", &self.port.to_string(), "--bind"])
            .args(self.host.addresses())
            .arg("--unixsocket")
            .arg(self.socket())
            .args(["--save", "", "--daemonize", "no", "--logfile", "log"])
            .args(["--repl-diskless-sync-delay", "0"]);
        if self.has_users() {
            let is_known = |right: &&&str| self.binary.knows_right(right);
            command.args(["--user", ADMIN]).args(ADMIN_RIGHTS.iter().filter(is_known));
        }
        command.args(&self.arguments);
        if self.binary.version() >= (7, 0, 0) {
            command.args(["--enable-debug-command", "yes"]);
        }
        if !self.host.is_loopback() {
            command.args(["--protected-mode", "no"]);
        }
        command
    }

    /// Redis has users from 6.0 on.
    fn has_users(&self) -> bool {
        self.binary.version() >= (6, 0, 0)
    }

    /// What a sentinel starts from; it writes into the file what it learns.
    fn write_sentinel_file(&self) {
        let rights = ADMIN_RIGHTS.join(" ");
        let own = format!(
            "port {}\nbind {}\nunixsocket {}\nlogfile log\nuser {} {rights}\n",
            self.port,
            self.host.address(),
            self.socket().display(),
            ADMIN
        );
        let text = own + &self.arguments.join("\n") + "\n";
        fs::write(self.dir().join("sentinel.conf"), text).expect("a file can be written");
    }

    /// Starts the process and waits until it answers.
    fn launch(&self) -> Result<(), String> {
        self.launch_until(Self::answers)
    }

    fn launch_until(&self, ready: fn(&Self) -> bool) -> Result<(), String> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(shim) = &self.shim {
            shim.apply(&mut command);
        }
        let child = command.spawn().map_err(|error| error.to_string())?;
        let watchdog = Watchdog::over(child.id(), Some(self.dir()));
        *self.lock_running() = Some(Running { child, watchdog });
        let deadline = Instant::now() + READY;
        loop {
            if let Some(running) = self.lock_running().as_mut()
                && let Ok(Some(status)) = running.child.try_wait()
            {
                return Err(format!("it ended with {status}"));
            }
            if ready(self) && (self.mode != Mode::OnlyNode || self.has_all_slots()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("it does not answer after {READY:?}"));
            }
            thread::sleep(Duration::from_millis(3));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of {} on port {}:\n{}---", self.binary, self.port, self.log());
        }
        self.kill9();
    }
}
