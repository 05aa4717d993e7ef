//! What an annotated function does when its lock is lost.

use std::future::pending;
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, redis_lock};
use testbed::Server;
use tokio::time::timeout;

use crate::support::{HANGS, LONG, PATIENCE, ms};

/// Tells when the body is dropped.
struct Witness<'a>(&'a Server, &'a mut bool);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        *self.1 = true;
        self.0.thaw();
    }
}

const SHORT: Duration = ms(300);

#[redis_lock(key = "lost", ttl = SHORT, renew = false, via = locks)]
async fn lasts(locks: &Locks, server: &Server, is_dropped: &mut bool) -> Result<(), LockError> {
    server.freeze();
    let _witness = Witness(server, is_dropped);
    pending().await
}

/// Only the end of the body lets the server go on: a call that asked the server for anything before
/// would wait for the whole time limit of a command.
#[tokio::test]
async fn t16_a_body_whose_lock_is_lost_is_dropped_before_anything_is_asked() {
    let server = Server::start();
    let locks = Locks::builder().url(server.url()).command_timeout(LONG).connect().await.unwrap();
    let mut is_dropped = false;
    let start = Instant::now();
    let outcome = timeout(PATIENCE, lasts(&locks, &server, &mut is_dropped)).await;
    let error = outcome.expect("the call ends without the server").unwrap_err();
    assert!(error.is_lost(), "{error}");
    // The timer, too, would wake a call that nothing else wakes.
    assert!(start.elapsed() < HANGS, "woken by the loss");
    assert!(is_dropped);
    server.assert_clean();
}
