//! Another program that writes whatever it likes to the keys of one lock, on every server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use redis::{Client, Cmd, Connection, RedisResult, Value};
use redis_locks::{LockError, LockRequest, Locks};

use super::TTL;
use super::random::Random;

/// The lock, which no other program than the workers should write to.
const LOCK: &str = "annoyed";
const KEYS: [&str; 5] = [
    "lock:annoyed",
    "lock:{lock:annoyed}:~q",
    "lock:{lock:annoyed}:~w",
    "lock:{lock:annoyed}:~f",
    "lock:{lock:annoyed}:~n",
];
const NUMBERS: [&str; 6] = ["9007199254740992", "18446744073709551616", "1e300", "-inf", "-1", "0"];

/// How long a server that stands still is waited for.
const LIMIT: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Tenant {
    servers: Vec<String>,
    over: Arc<AtomicBool>,
    writing: Option<JoinHandle<u64>>,
}

impl Tenant {
    /// Begins to write, to servers with these URLs.
    pub(crate) fn start(servers: Vec<String>, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (until, urls) = (Arc::clone(&over), servers.clone());
        let writing = thread::spawn(move || {
            let (mut random, mut written) = (Random::new(seed), 0);
            while !until.load(Ordering::Relaxed) {
                written += urls.iter().map(|url| write(url, &mut random).unwrap_or(0)).sum::<u64>();
                thread::sleep(PAUSE);
            }
            written
        });
        Self { servers, over, writing: Some(writing) }
    }

    /// Ends it. Returns how many writes were done.
    pub(crate) fn end(&mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.writing.take().and_then(|writing| writing.join().ok()).unwrap_or(0)
    }

    /// Removes what it has left. A server that stood still may execute a last write later.
    pub(crate) fn tidy(&self) {
        for url in &self.servers {
            for key in KEYS {
                // A server without the key's slot, or a replica, has nothing of it.
                let _ = connect(url).and_then(|mut it| redis::cmd("DEL").arg(key).exec(&mut it));
            }
        }
    }
}

fn connect(url: &str) -> RedisResult<Connection> {
    let connection = Client::open(url)?.get_connection_with_timeout(LIMIT)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_write_timeout(Some(LIMIT))?;
    Ok(connection)
}

/// Writes a few times to one server. Returns how often it agreed.
fn write(url: &str, random: &mut Random) -> RedisResult<u64> {
    let mut connection = connect(url)?;
    // What stands there may be of another type.
    let agrees = |_: &usize| command(random).query::<Value>(&mut connection).is_ok();
    Ok((0..5).filter(agrees).count() as u64)
}

fn command(random: &mut Random) -> Cmd {
    let (key, number) = (random.pick(&KEYS), random.pick(&NUMBERS));
    let (name, value) = match random.below(5) {
        0 => ("DEL", None),
        1 => ("SET", Some(bytes(random))),
        2 => ("ZADD", Some(bytes(random))),
        3 => ("HSET", Some(bytes(random))),
        _ => ("LPUSH", Some(bytes(random))),
    };
    let mut cmd = redis::cmd(name);
    cmd.arg(key);
    if matches!(name, "ZADD" | "HSET") {
        cmd.arg(number);
    }
    cmd.arg(value);
    cmd
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let token = format!("rl1.{}.{}.0.", "a".repeat(32), "b".repeat(12));
    match random.below(5) {
        0 => random.pick(&NUMBERS).into(),
        1 => format!("{} {token}", random.pick(&NUMBERS)).into(),
        2 => random.next().to_le_bytes().into(),
        3 => format!("{token}{}", "x".repeat(20_000)).into(),
        _ => format!("r:{token}").into(),
    }
}

/// Asks for that lock. Whatever comes of it, it comes, and in words that can be shown.
pub(super) async fn ask_for_its_lock(
    locks: &Locks,
    random: &mut Random,
    on_quorum: bool,
) -> Result<()> {
    let request: LockRequest = match random.below(4) {
        0 => locks.read(LOCK),
        1 => locks.write(LOCK),
        2 if !on_quorum => locks.permit(LOCK, 3),
        _ => locks.mutex(LOCK).fenced(),
    };
    let outcome = request.ttl(TTL).wait(Duration::from_millis(20)).acquire().await;
    let ended: Result<(), LockError> = match outcome {
        Ok(guard) => guard.release().await,
        Err(error) => Err(error),
    };
    let text = ended.err().map(|error| error.to_string()).unwrap_or_default();
    let can_be_shown = text.len() < 4_000 && !text.chars().any(char::is_control);
    ensure!(can_be_shown && !text.contains("this is a bug"), "a tenant caused {text:?}");
    Ok(())
}
