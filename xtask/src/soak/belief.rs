use std::time::{Duration, Instant};

use redis::{ConnectionLike, RedisResult};
use redis_locks::Guard;

/// Compares the remaining lease of guards with the server's ttl.
///
/// The guard's remaining time is read first, then the server is asked. The answer describes a later
/// time, so a guard's end that is later than the server's is wrong, however long the question took.
/// A guard that is no longer valid when the answer arrives is not wrong: another task may have shut
/// its manager down after the first reading, which releases the lock.
pub(crate) struct Auditor {
    url: String,
    connection: Option<redis::Connection>,
}

/// A server says whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// A question that takes longer, or has no answer, shows nothing.
const PATIENCE: Duration = Duration::from_millis(100);

impl Auditor {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), connection: None }
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

    /// How long the server keeps the key; nothing when it has none.
    fn left(&mut self, key: &str) -> Option<Duration> {
        let mut connection = self.connection.take().or_else(|| self.connect().ok())?;
        let left: RedisResult<i64> = redis::cmd("PTTL").arg(key).query(&mut connection);
        if left.is_ok() && connection.is_open() {
            self.connection = Some(connection);
        }
        // A key without a ttl stays for ever, one that is gone has nothing left.
        match left.ok()? {
            -1 => Some(Duration::MAX),
            left => Some(Duration::from_millis(left.try_into().unwrap_or(0))),
        }
    }

    fn connect(&self) -> RedisResult<redis::Connection> {
        let client = redis::Client::open(&*self.url)?;
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }
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
