//! Releases that no caller waits for: still in order, still done.

use redis_locks::LockError;
use testbed::ServerBuilder;

use crate::support::*;

async fn b3_a_release_in_the_background_goes_before_the_next_acquisition(builder: ServerBuilder) {
    let server = builder.start();
    let locks = manager(&server);
    for round in 0..500 {
        // One attempt is enough: the release is ahead of it on the same connection.
        let guard = job(&locks).try_acquire().await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("still locked in round {round}"));
        guard.release_in_background();
    }
    server.assert_clean();
}

async fn b3_the_same_while_another_process_waits(builder: ServerBuilder) {
    let server = builder.start();
    let (locks, other) = (manager(&server), manager(&server));
    for _ in 0..50 {
        let guard = job(&locks).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&other).acquire());
        until_queued(&server, 1);
        guard.release_in_background();
        // The waiter has it, and not the one that released it.
        assert!(job(&locks).try_acquire().await.unwrap().is_none(), "a newcomer passed the queue");
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    server.assert_clean();
}

async fn j2_a_shutdown_sends_the_releases_that_nobody_waited_for(builder: ServerBuilder) {
    let server = builder.start();
    for _ in 0..5 {
        let locks = manager(&server);
        let mut guards = Vec::new();
        for key in 0..200 {
            guards.push(locks.mutex(format!("key:{key}")).ttl(LONG).acquire().await.unwrap());
        }
        assert_eq!(server.keys().len(), 200);
        guards.into_iter().for_each(redis_locks::Guard::release_in_background);
        locks.shutdown().await;
        assert_eq!(server.keys(), Vec::<String>::new(), "at once, and not some time later");
        assert!(matches!(job(&locks).acquire().await, Err(LockError::Shutdown)));
    }
    server.assert_clean();
}

on_both_servers!(
    b3_a_release_in_the_background_goes_before_the_next_acquisition,
    b3_the_same_while_another_process_waits,
    j2_a_shutdown_sends_the_releases_that_nobody_waited_for,
);
