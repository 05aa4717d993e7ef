//! What is reported to `metrics`, in one test: there is one recorder for the whole program.

#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redis_locks::Locks;
use testbed::{Proxy, Server, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// The sums of all looks, by `name{label=value}`.
#[derive(Default)]
struct Numbers {
    sums: BTreeMap<String, f64>,
    samples: BTreeMap<String, Vec<f64>>,
}

impl Numbers {
    fn add(&mut self, snapshotter: &Snapshotter) -> &mut Self {
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let named = key.labels().filter(|label| !label.value().is_empty());
            let labels: Vec<_> =
                named.map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = match labels.as_slice() {
                [] => key.name().to_owned(),
                labels => format!("{}{{{}}}", key.name(), labels.join(",")),
            };
            match value {
                DebugValue::Counter(count) => *self.sums.entry(name).or_default() += count as f64,
                // A look sets gauges back as well.
                DebugValue::Gauge(change) => *self.sums.entry(name).or_default() += *change,
                DebugValue::Histogram(values) => {
                    let values = values.into_iter().map(|value| *value);
                    self.samples.entry(name).or_default().extend(values);
                }
            }
        }
        self
    }

    fn of(&self, name: &str) -> f64 {
        self.sums.get(&format!("redis_locks_{name}")).copied().unwrap_or(0.0)
    }

    fn samples(&self, name: &str) -> &[f64] {
        self.samples.get(&format!("redis_locks_{name}")).map_or(&[], Vec::as_slice)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_counts() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let mut numbers = Numbers::default();
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::connect(proxy.url()).await.unwrap();
    let other = Locks::connect(server.url()).await.unwrap();

    let guard = locks.mutex("a").acquire().await.unwrap();
    numbers.add(&snapshotter);
    assert_eq!(numbers.of("acquired_total{kind=mutex}"), 1.0);
    assert_eq!(numbers.of("held{kind=mutex}"), 1.0);
    assert_eq!(numbers.samples("wait_seconds{kind=mutex,outcome=acquired}").len(), 1);

    // Busy, and cancelled while waiting.
    assert!(other.mutex("a").try_acquire().await.unwrap().is_none());
    let mut waiting = Box::pin(other.mutex("a").acquire());
    let start = std::time::Instant::now();
    let counts = ["waiting{kind=mutex}", "contended_total{kind=mutex}"];
    while counts.iter().any(|name| numbers.of(name) < 1.0) {
        assert!(start.elapsed() < 5 * SECOND, "it does not count as waiting");
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        numbers.add(&snapshotter);
    }
    assert_eq!(numbers.of("waiting{kind=mutex}"), 1.0);
    drop(waiting);
    numbers.add(&snapshotter);
    assert_eq!(numbers.of("waiting{kind=mutex}"), 0.0);
    assert_eq!(numbers.of("failed_total{kind=mutex,outcome=busy}"), 1.0);
    assert_eq!(numbers.of("failed_total{kind=mutex,outcome=cancelled}"), 1.0);
    for outcome in ["busy", "cancelled"] {
        let waits = format!("wait_seconds{{kind=mutex,outcome={outcome}}}");
        assert_eq!(numbers.samples(&waits).len(), 1, "{outcome}");
    }

    guard.release().await.unwrap();
    numbers.add(&snapshotter);
    assert_eq!(numbers.of("released_total{kind=mutex}"), 1.0);
    assert_eq!(numbers.of("held{kind=mutex}"), 0.0);
    assert_eq!(numbers.samples("hold_seconds{kind=mutex}").len(), 1);

    // Lost by force.
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert!(other.force_release("a", "it hangs").await.unwrap());
    guard.lost().await;
    drop(guard);
    eventually(20 * SECOND, "the loss counts", || {
        numbers.add(&snapshotter).of("lost_total{kind=mutex,reason=forced}") == 1.0
    });
    assert_eq!(numbers.of("forced_total"), 1.0);
    assert_eq!(numbers.of("held{kind=mutex}"), 0.0);
    assert_eq!(numbers.of("released_total{kind=mutex}"), 1.0);

    found_losses_count(&locks, &server, &mut numbers, &snapshotter).await;
    queued_calls_count(&locks, &mut numbers, &snapshotter).await;
    renewals_count(&locks, &proxy, &mut numbers, &snapshotter).await;
    assert_eq!(numbers.samples("hold_seconds{kind=mutex}").len(), 14);
}

/// A key that was removed unnoticed: the release finds it.
async fn found_losses_count(
    locks: &Locks,
    server: &Server,
    numbers: &mut Numbers,
    snapshotter: &Snapshotter,
) {
    let guard = locks.mutex("a").acquire().await.unwrap();
    let _: i64 = server.run("DEL lock:a");
    assert!(guard.release().await.unwrap_err().is_lost());
    numbers.add(snapshotter);
    assert_eq!(numbers.of("lost_total{kind=mutex,reason=removed}"), 1.0);
}

/// Nine calls at once, that queue behind one that has the lock.
async fn queued_calls_count(locks: &Locks, numbers: &mut Numbers, snapshotter: &Snapshotter) {
    let contended = numbers.of("contended_total{kind=mutex}");
    let first = locks.mutex("ten").acquire().await.unwrap();
    let mut nine: Vec<_> = (0..9).map(|_| Box::pin(locks.mutex("ten").acquire())).collect();
    for call in &mut nine {
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    first.release().await.unwrap();
    for call in nine {
        call.await.unwrap().release().await.unwrap();
    }
    numbers.add(snapshotter);
    assert_eq!(numbers.of("contended_total{kind=mutex}") - contended, 9.0, "all but the first");
}

/// A hold is renewed, then cut off until the lease has ended.
async fn renewals_count(
    locks: &Locks,
    proxy: &Proxy,
    numbers: &mut Numbers,
    snapshotter: &Snapshotter,
) {
    let guard = locks.mutex("b").ttl(SECOND).acquire().await.unwrap();
    eventually(20 * SECOND, "a renewal counts", || {
        numbers.add(snapshotter).of("renewals_total{kind=mutex,outcome=answered}") >= 1.0
    });
    proxy.hole();
    guard.lost().await;
    eventually(20 * SECOND, "what failed counts", || {
        numbers.add(snapshotter);
        numbers.of("renewals_total{kind=mutex,outcome=missed}") >= 1.0
            && numbers.of("backend_errors_total{kind=mutex,reason=timed_out}") >= 1.0
            && numbers.of("lost_total{kind=mutex,reason=expired}") == 1.0
    });
    proxy.pass();
}
