use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{ConnectionLike, RedisError, RedisResult, Value};
use redis_locks::Guard;

/// Compares the remaining lease of guards with the server's ttl.
///
/// The guard's remaining time is read first, then the server is asked. The answer describes a later
/// time, so a guard's end that is later than the server's is wrong, however long the question took.
/// A guard that is no longer valid when the answer arrives is not wrong: another task may have shut
/// its manager down after the first reading, which releases the lock.
pub(crate) struct Auditor {
    /// All servers. The lock is at one of them.
    urls: Vec<String>,
    /// Which one was asked last.
    current: usize,
    connections: BTreeMap<usize, redis::Connection>,
}

/// A server says whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// A question that takes longer, or has no answer, shows nothing.
const PATIENCE: Duration = Duration::from_millis(100);

impl Auditor {
    /// Asks these servers, named one after the other with commas between.
    pub(crate) fn new(urls: &str) -> Self {
        let urls = urls.split(',').map(ToOwned::to_owned).collect();
        Self { urls, current: 0, connections: BTreeMap::new() }
    }

    /// By how much the guard's remaining time exceeds the ttl of any of its keys; `None` when the
    /// server does not answer, or the guard is not valid.
    pub(crate) fn excess(&mut self, guard: &Guard, keys: &[String]) -> Option<Duration> {
        let mut worst = None;
        for key in keys {
            let start = Instant::now();
            let believed = guard.remaining();
            if believed.is_zero() {
                return None;
            }
            let left = self.left(key)?;
            if guard.remaining().is_zero() {
                return None;
            }
            worst = worst.max(Some(excess(believed, left, start.elapsed())));
        }
        worst
    }

    /// How long the server that has the key keeps it; nothing when it has none.
    fn left(&mut self, key: &str) -> Option<Duration> {
        for _ in 0..self.urls.len() {
            match self.ask(key) {
                // A key without a ttl stays for ever, one that is gone has nothing left.
                Ok(Some(-1)) => return Some(Duration::MAX),
                Ok(Some(left)) => return Some(Duration::from_millis(left.try_into().unwrap_or(0))),
                Ok(None) => self.current = (self.current + 1) % self.urls.len(),
                Err(error) => self.current = self.named_by(&error)?,
            }
        }
        None
    }

    /// The server that has the slot, when the one that was asked names it; none while a slot moves.
    fn named_by(&self, error: &RedisError) -> Option<usize> {
        let is_moved = error.code() == Some("MOVED");
        let (address, _) = error.redirect_node().filter(|_| is_moved)?;
        self.urls.iter().position(|url| url.ends_with(address))
    }

    /// The key's `PTTL` at the current server; `None` where that is no primary.
    fn ask(&mut self, key: &str) -> RedisResult<Option<i64>> {
        let mut connection = match self.connections.remove(&self.current) {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer: RedisResult<(i64, Value)> = redis::cmd("PTTL")
            .arg(key)
            .query(&mut connection)
            .and_then(|left| Ok((left, redis::cmd("ROLE").query(&mut connection)?)));
        // A connection whose answer is late would give it to the next question.
        if connection.is_open() && !answer.as_ref().is_err_and(RedisError::is_timeout) {
            self.connections.insert(self.current, connection);
        }
        let (left, role) = answer?;
        Ok(is_primary(&role).then_some(left))
    }

    fn connect(&self) -> RedisResult<redis::Connection> {
        let client = redis::Client::open(&*self.urls[self.current])?;
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }
}

fn is_primary(role: &Value) -> bool {
    let Value::Array(role) = role else { return false };
    matches!(role.first(), Some(Value::BulkString(name)) if name == b"master")
}

/// `left` was true at some time before the question had taken `took`.
fn excess(believed: Duration, left: Duration, took: Duration) -> Duration {
    let end = left.saturating_add(took).saturating_add(ROUNDING);
    believed.saturating_sub(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_belief_may_not_reach_beyond_the_answer() {
        assert_eq!(excess(ms(500), ms(500), ms(0)), ms(0));
        assert_eq!(excess(ms(500), ms(480), ms(30)), ms(0));
        assert_eq!(excess(ms(500), ms(480), ms(9)), ms(10));
        assert_eq!(excess(ms(500), ms(0), ms(0)), ms(499));
        assert_eq!(excess(ms(500), Duration::MAX, ms(5)), ms(0));
    }

    #[test]
    fn the_server_that_has_the_lock_is_found_among_others() {
        let cluster = testbed::Cluster::builder().replicas(0).start();
        let locks = redis_locks::Locks::builder().cluster(cluster.urls()).open().unwrap();
        let mut auditor = Auditor::new(&cluster.urls().join(","));
        for node in cluster.nodes() {
            let name = cluster.name_at(node, "job", |name| format!("lock:{name}"));
            let guard = locks.mutex(&name).ttl(ms(60_000)).blocking_acquire().unwrap();
            assert_eq!(auditor.excess(&guard, &[format!("lock:{name}")]), Some(ms(0)));
        }
    }

    #[test]
    fn a_guard_and_its_server_agree_and_a_shortened_key_is_noticed() {
        let server = testbed::Server::start();
        let locks = redis_locks::Locks::open(server.url()).unwrap();
        let guard = locks.mutex("job").ttl(ms(60_000)).blocking_acquire().unwrap();
        let (mut auditor, keys) = (Auditor::new(&server.url()), ["lock:job".to_owned()]);
        assert_eq!(auditor.excess(&guard, &keys), Some(ms(0)));
        server.run::<()>("PEXPIRE lock:job 20000");
        assert!(auditor.excess(&guard, &keys).is_some_and(|excess| excess > ms(20_000)));
        server.kill9();
        assert_eq!(auditor.excess(&guard, &keys), None);
    }
}
