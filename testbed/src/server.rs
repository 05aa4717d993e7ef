mod builder;
mod inspect;

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub use builder::ServerBuilder;

use crate::{
    clock_shim::ClockShim,
    find::ServerBinary,
    signal::{continue_process, kill_process, stop_process},
    watchdog::Watchdog,
};

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
    port: u16,
    arguments: Vec<String>,
    shim: Option<ClockShim>,
    cluster: bool,
    running: Mutex<Option<Running>>,
    admin: Mutex<Option<inspect::Admin>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Dropped, and so called off, before anything else is done with the process.
    watchdog: Watchdog,
}

impl Server {
    /// Any server this machine has, without persistence.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with more to say about it.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    /// `redis://127.0.0.1:{port}`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The address over the unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
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
        fs::read_dir(self.dir().join("appendonlydir"))
            .expect("a server started with aof() has an appendonlydir")
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

    /// Starts the process and waits until it answers.
    fn launch(&self) -> Result<(), String> {
        self.launch_until(Self::answers)
    }

    /// Before version 7 `DEBUG` is allowed without being asked for.
    fn debug_command(&self) -> &'static [&'static str] {
        let old = self.binary.version().0 < 7;
        if old { &[] } else { &["--enable-debug-command", "yes"] }
    }

    fn launch_until(&self, ready: fn(&Self) -> bool) -> Result<(), String> {
        let mut command = Command::new(self.binary.path());
        command
            .current_dir(self.dir())
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .arg("--unixsocket")
            .arg(self.socket())
            .args(["--save", "", "--daemonize", "no", "--logfile", "log"])
            .args(["--repl-diskless-sync-delay", "0"])
            .args(self.debug_command())
            .args(["--user", inspect::ADMIN])
            .args(inspect::ADMIN_RIGHTS)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
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
            if ready(self) && (!self.cluster || self.has_all_slots()) {
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
