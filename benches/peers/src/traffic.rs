//! What a server is made to do.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testbed::Server;

/// Commands a second, those of the scenery left out.
pub(crate) struct Traffic {
    /// With those that scripts call.
    pub(crate) executed: f64,
    /// Without them.
    pub(crate) sent: f64,
}

impl Traffic {
    /// Counts for so long.
    pub(crate) fn over(server: &Server, time: Duration) -> Self {
        let monitor = server.monitor();
        let before = executed(server);
        let start = Instant::now();
        sleep(time);
        let seconds = start.elapsed().as_secs_f64();
        let after = executed(server);
        let sent = monitor.lines().iter().filter(|line| sender(line).is_some()).count();
        Self {
            executed: after.saturating_sub(before) as f64 / seconds,
            sent: sent as f64 / seconds,
        }
    }
}

/// How many clients sent a command, beyond the answer to "are you there", in so long.
pub(crate) fn active_clients(server: &Server, time: Duration) -> usize {
    let monitor = server.monitor();
    sleep(time);
    let lines = monitor.lines();
    let clients: HashSet<&str> = lines
        .iter()
        .filter(|line| !line.contains("\"PING\""))
        .filter_map(|line| sender(line))
        .collect();
    clients.len()
}

fn executed(server: &Server) -> u64 {
    let own = ["info", "monitor", "auth"];
    let counts = server.command_counts();
    counts.iter().filter(|(name, _)| !own.contains(&name.as_str())).map(|(_, calls)| calls).sum()
}

/// The client's address in a line of `MONITOR`; nothing when a script made the call.
fn sender(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('[')?;
    let (_, address) = rest.split_once(']')?.0.split_once(' ')?;
    (address != "lua").then_some(address)
}
