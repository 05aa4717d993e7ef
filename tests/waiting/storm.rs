//! Many locks held at once by one process.

use std::time::{Duration, Instant};

use redis_locks::Guard;
use testbed::ServerBuilder;
use tokio::task::JoinSet;

use crate::support::*;

const LOCKS: u64 = 5_000;
const TTL: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(10);

async fn c12_five_thousand_locks_are_kept_with_one_renewal_per_third_of_their_lease(
    builder: ServerBuilder,
) {
    let _alone = alone().await;
    let server = builder.start();
    let locks = manager(&server);
    let mut asking = JoinSet::new();
    for key in 0..LOCKS {
        let request = locks.mutex(format!("key:{key}")).ttl(TTL);
        asking.spawn(async move { request.acquire().await.unwrap() });
    }
    let guards: Vec<Guard> = asking.join_all().await;

    server.reset_counts();
    let start = Instant::now();
    let mut shortest = TTL;
    while start.elapsed() < TIME {
        for guard in &guards {
            assert!(guard.is_held(), "{} was lost after {:?}", guard.key(), start.elapsed());
            shortest = shortest.min(guard.remaining());
        }
        tokio::time::sleep(ms(50)).await;
    }
    let took = start.elapsed();
    let counts = server.command_counts();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let (renewals, calls) = (count("pexpire"), count("eval") + count("evalsha"));
    eprintln!("{renewals} renewals in {took:?}, {calls} calls; at least {shortest:?} were left");
    // A renewal comes after 30 to 37 % of the lease.
    let each = |share: f64| took.as_secs_f64() / (TTL.as_secs_f64() * share);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let per_lock = renewals as f64 / LOCKS as f64;
    assert!(per_lock <= each(0.29), "{per_lock} renewals of each lock");
    assert!(per_lock >= each(0.50) - 1.0, "{per_lock} renewals of each lock: they come late");
    assert!(calls * 2 <= renewals, "{calls} calls: they go together");
    // All of them are on the server, too.
    assert_eq!(server.run::<u64>("DBSIZE"), LOCKS);
    drop(guards);
    locks.shutdown().await;
    server.assert_clean();
}

on_both_servers!(c12_five_thousand_locks_are_kept_with_one_renewal_per_third_of_their_lease);
