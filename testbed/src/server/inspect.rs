//! What a test asks a server, past the locks under test: over the unix socket and as a user of
//! its own, so that proxies, passwords and killed connections don't stand in the way.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionLike, FromRedisValue, RedisResult, Value};

use super::Server;
use crate::monitor::Monitor;

/// The scenery's user, and its password.
pub(crate) const ADMIN: &str = "testbed";
pub(crate) const ADMIN_RIGHTS: [&str; 5] =
    ["on", ">testbed", "allkeys", "allchannels", "allcommands"];

const REPLY: Duration = Duration::from_secs(10);
/// Releases go on in the background when a guard is dropped: time for the last to arrive.
const SETTLED: Duration = Duration::from_secs(3);

/// The scenery's own connection.
pub(super) struct Admin(redis::Connection);

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}

impl Server {
    /// Runs a command given as words, and converts the answer; panics when the server refuses.
    ///
    /// ```no_run
    /// # let server = testbed::Server::start();
    /// let owner: Option<String> = server.run("GET lock:job");
    /// server.run::<()>("CONFIG SET maxmemory 1");
    /// ```
    #[track_caller]
    pub fn run<T: FromRedisValue>(&self, words: &str) -> T {
        let mut command = Cmd::new();
        for word in words.split_whitespace() {
            command.arg(word);
        }
        match self.query(&command) {
            Ok(value) => value,
            Err(error) => panic!("`{words}`: {error}"),
        }
    }

    /// Runs any command of the driver.
    ///
    /// # Errors
    /// What the server answers, or that it does not.
    pub fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that was used before may have been closed meanwhile: servers do that.
        let open = admin.take().and_then(|Admin(mut connection)| {
            redis::cmd("CLIENT").arg("ID").exec(&mut connection).is_ok().then_some(connection)
        });
        let mut connection = match open {
            Some(connection) => connection,
            None => self.admin_connection()?,
        };
        let answer = command.query(&mut connection);
        let broken = answer.as_ref().is_err_and(|error| error.is_io_error());
        if !broken && connection.is_open() {
            *admin = Some(Admin(connection));
        }
        answer
    }

    /// The milliseconds a key has left; `None` when it is not there, -1 when it has no ttl.
    pub fn pttl(&self, key: &str) -> Option<i64> {
        match self.query(redis::cmd("PTTL").arg(key)).expect("PTTL answers") {
            -2 => None,
            left => Some(left),
        }
    }

    /// The string at `key`.
    pub fn get(&self, key: &str) -> Option<String> {
        self.query(redis::cmd("GET").arg(key)).expect("GET answers")
    }

    /// Whether there is anything at `key`.
    pub fn exists(&self, key: &str) -> bool {
        self.query(redis::cmd("EXISTS").arg(key)).expect("EXISTS answers")
    }

    /// Every key of database 0, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run("KEYS *");
        keys.sort_unstable();
        keys
    }

    /// How often each command ran since the start or the last [`reset_counts`](Self::reset_counts),
    /// from scripts too, those of this scenery's included.
    pub fn command_counts(&self) -> BTreeMap<String, u64> {
        let text: String = self.run("INFO commandstats");
        text.lines()
            .filter_map(|line| {
                let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                let calls = rest.split(',').next()?.parse().ok()?;
                Some((name.to_ascii_lowercase(), calls))
            })
            .collect()
    }

    /// Starts the counts of [`command_counts`](Self::command_counts) anew.
    pub fn reset_counts(&self) {
        self.run::<()>("CONFIG RESETSTAT");
    }

    /// Records every command that arrives from now on, but for this scenery's own.
    pub fn monitor(&self) -> Monitor {
        let user = self.has_users().then_some(ADMIN);
        Monitor::start(&self.socket(), &self.socket().display().to_string(), user)
    }

    /// Waits for the locks' last traces to go: afterwards no lock is left, no queue before one,
    /// and no key at all that would stay for ever. Panics, naming the offenders, when some are left.
    #[track_caller]
    pub fn assert_clean(&self) {
        let start = Instant::now();
        loop {
            let offenders = self.offenders();
            if offenders.is_empty() {
                return;
            }
            assert!(start.elapsed() < SETTLED, "left on the server:\n{}", offenders.join("\n"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn offenders(&self) -> Vec<String> {
        self.keys()
            .into_iter()
            .filter_map(|key| match self.pttl(&key)? {
                -1 => Some(format!("{key}: without a ttl")),
                left if is_held_or_awaited(&key) => Some(format!(
                    "{key}: a lock or its queue, {left} ms left, {:?}",
                    self.query::<Value>(redis::cmd("GET").arg(&key))
                )),
                _ => None,
            })
            .collect()
    }

    /// Whether the process that runs is ours, and takes commands.
    pub(super) fn answers(&self) -> bool {
        self.is_up() && self.query::<String>(&redis::cmd("PING")).is_ok()
    }

    /// Whether the process that runs is ours, and says so, though it may be loading its data.
    pub(super) fn is_up(&self) -> bool {
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let Ok(text) = self.query::<String>(&info) else { return false };
        let ours = format!("process_id:{}", self.pid());
        text.lines().any(|line| line.trim_end() == ours)
    }

    /// Whether the only node of a cluster serves all slots; has it take them, where it has not.
    pub(super) fn has_all_slots(&self) -> bool {
        let info: RedisResult<String> = self.query(redis::cmd("CLUSTER").arg("INFO"));
        let info = info.unwrap_or_default();
        if info.contains("cluster_slots_assigned:0") {
            // If it is refused, the next look says so.
            let _ = self.add_slots(0..=16_383);
        }
        info.contains("cluster_state:ok")
    }

    /// Has a node of a cluster take slots that no node has. (`ADDSLOTSRANGE` came with 7.0.)
    pub(crate) fn add_slots(&self, slots: RangeInclusive<u16>) -> RedisResult<Value> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("ADDSLOTS");
        for slot in slots {
            command.arg(slot);
        }
        self.query(&command)
    }

    /// One line of `INFO`, such as `role:master`, without its name.
    pub fn info(&self, section: &str, name: &str) -> Option<String> {
        let text: String = self.query(redis::cmd("INFO").arg(section)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim_end().to_owned())
    }

    pub(super) fn forget_admin(&self) {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn admin_connection(&self) -> RedisResult<redis::Connection> {
        let user =
            if self.has_users() { format!("?user={ADMIN}&pass={ADMIN}") } else { String::new() };
        let url = format!("redis+unix://{}{user}", self.socket().display());
        let connection = redis::Client::open(url)?.get_connection()?;
        connection.set_read_timeout(Some(REPLY))?;
        connection.set_write_timeout(Some(REPLY))?;
        Ok(connection)
    }
}

/// What must be gone when no caller holds or waits: the locks themselves, and the two keys of a
/// queue. Other side keys (fences, tombstones) stay behind on purpose, and end by themselves.
fn is_held_or_awaited(key: &str) -> bool {
    match key.rsplit_once(":~") {
        None => true,
        Some((_, side)) => matches!(side, "q" | "w"),
    }
}
