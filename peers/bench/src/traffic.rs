//! How many commands a server executes.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testbed::{Monitor, Server};

/// Commands a second, those of the scenery left out.
pub(crate) struct Traffic {
    /// By clients.
    pub(crate) sent: f64,
    /// By their scripts.
    pub(crate) inner: f64,
}

impl Traffic {
    /// Counts for so long.
    pub(crate) fn over(server: &Server, time: Duration) -> Self {
        let monitor = server.monitor();
        let start = Instant::now();
        sleep(time);
        let seconds = start.elapsed().as_secs_f64();
        let lines = monitor.lines();
        let (sent, inner): (Vec<_>, Vec<_>) =
            lines.iter().filter_map(|line| Sent::read(line)).partition(|one| one.client != SCRIPT);
        Self { sent: sent.len() as f64 / seconds, inner: inner.len() as f64 / seconds }
    }
}

/// How many clients sent a command from one time to another, by the server's clock, in seconds.
pub(crate) fn active_clients(monitor: &Monitor, from: f64, to: f64) -> usize {
    let lines = monitor.lines();
    let clients: HashSet<&str> = lines
        .iter()
        // A `PING` does not show that its client was woken.
        .filter(|line| !line.contains("\"PING\""))
        .filter_map(|line| Sent::read(line))
        .filter(|one| one.client != SCRIPT && one.at >= from && one.at < to)
        .map(|one| one.client)
        .collect();
    clients.len()
}

/// What `MONITOR` writes in place of a client's address when a script made the call.
const SCRIPT: &str = "lua";

/// A line of `MONITOR`: `1700000000.123456 [0 127.0.0.1:4711] "GET" "key"`.
struct Sent<'a> {
    at: f64,
    client: &'a str,
}

impl<'a> Sent<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (before, rest) = line.split_once('[')?;
        let (_, client) = rest.split_once(']')?.0.split_once(' ')?;
        let at = before.trim_start_matches('+').trim().parse().ok()?;
        Some(Self { at, client })
    }
}
