//! Numbers by lock and by function, as Prometheus reads them.

#![cfg(feature = "metrics")]

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redis_locks::{LockError, LockKey, Locks, redis_lock, redis_lock_defaults};

type R<T = ()> = Result<T, LockError>;

macro_rules! functions {
    ($($name:ident)*) => {
        use redis_locks::{Locks, redis_lock};

        $(
            #[redis_lock(key = "job:{id}", via = locks)]
            fn $name(locks: &Locks, id: usize) -> crate::R {
                Ok(())
            }
        )*

        pub(crate) fn call(locks: &Locks) {
            $($name(locks, 1).unwrap();)*
        }

        pub(crate) const NAMES: &[&str] = &[$(concat!(module_path!(), "::", stringify!($name))),*];
    };
}

macro_rules! modules {
    ($($name:ident)*) => {
        $(
            mod $name {
                functions! {
                    f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24
                }
            }
        )*

        fn call_all(locks: &Locks) -> Vec<&'static str> {
            $($name::call(locks);)*
            [$($name::NAMES),*].concat()
        }
    };
}

modules! { m0 m1 m2 m3 m4 m5 m6 m7 m8 m9 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 }

/// The recorder of the whole program.
fn prometheus() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap())
}

/// The values of a metric with these labels.
fn values(name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    values_in(&prometheus().render(), name, labels)
}

/// The same out of the text that Prometheus reads.
fn values_in(text: &str, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let has = |line: &str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|(name, value)| line.contains(&format!("{name}=\"{value}\"")))
    };
    let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse().unwrap();
    text.lines().filter(|line| has(line)).map(value).collect()
}

#[test]
fn each_of_500_functions_has_its_own_numbers() {
    prometheus();
    let names = call_all(&Locks::in_memory());
    assert_eq!(names.len(), 500);
    let text = prometheus().render();
    for metric in ["acquired_total", "released_total", "hold_seconds_count", "wait_seconds_count"] {
        let metric = format!("redis_locks_{metric}");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&metric)).collect();
        let text = lines.join("\n");
        for name in &names {
            let labels = [("function", *name), ("lock", "job:{id}"), ("kind", "mutex")];
            assert_eq!(values_in(&text, &metric, &labels), [1.0], "{metric} {name}");
        }
    }
}

struct Orders {
    locks: Locks,
}

#[redis_lock_defaults(via = self.locks, prefix = "orders:", wait = "none")]
impl Orders {
    #[redis_lock(key = "{id}", request = charge_lock)]
    async fn charge(&self, id: u64) -> R<u64> {
        Ok(id)
    }

    #[redis_lock(keys = ["from:{from}", "to:{to}"])]
    async fn transfer(&self, from: u64, to: u64) -> R {
        Ok(())
    }
}

#[redis_lock(keys = ["a", one.clone()], via = locks)]
async fn with_one(locks: &Locks, one: LockKey) -> R {
    Ok(())
}

#[redis_lock(keys = names.iter().copied().map(LockKey::from_static), via = locks)]
async fn with_all(locks: &Locks, names: &[&'static str]) -> R {
    Ok(())
}

#[redis_lock(key("{}:{b}", a.len(), b = 1), via = locks, write)]
fn written(locks: &Locks, a: &str) -> R {
    Ok(())
}

#[tokio::test]
async fn a_lock_is_called_by_its_template_and_a_function_by_its_path() -> R {
    prometheus();
    let orders = Orders { locks: Locks::in_memory() };
    let acquired = |lock: &str, function: &str| {
        values("redis_locks_acquired_total", &[("lock", lock), ("function", function)])
    };
    let charge = "observe_functions::Orders::charge";
    assert_eq!(orders.charge(1).await?, 1);
    assert_eq!(acquired("orders:{id}", charge), [1.0]);
    let held = orders.charge_lock(2)?.acquire().await?;
    assert_eq!(acquired("orders:{id}", charge), [2.0], "the companion counts as its function");
    assert!(orders.charge(2).await.unwrap_err().is_busy());
    let labels =
        [("lock", "orders:{id}"), ("function", charge), ("kind", "mutex"), ("outcome", "busy")];
    assert_eq!(values("redis_locks_failed_total", &labels), [1.0]);
    assert_eq!(values("redis_locks_wait_seconds_count", &labels), [1.0]);
    let held_now = values("redis_locks_held", &labels[..3]);
    held.release().await?;
    assert_eq!(
        (held_now.as_slice(), values("redis_locks_held", &labels[..3])),
        (&[1.0][..], vec![0.0])
    );

    let locks = &orders.locks;
    orders.transfer(1, 2).await?;
    with_one(locks, "one".into()).await?;
    with_all(locks, &["b", "c"]).await?;
    written(locks, "abc")?;
    for (lock, function) in [
        ("orders:from:{from}, orders:to:{to}", "Orders::transfer"),
        ("a, {one.clone()}", "with_one"),
        ("{names.iter().copied().map(LockKey::from_static)}", "with_all"),
        ("{}:{b}", "written"),
    ] {
        assert_eq!(acquired(lock, &format!("observe_functions::{function}")), [1.0], "{lock}");
    }

    let named = locks.mutex("order:7").metric_name("an order").acquire().await?;
    assert_eq!(acquired("an order", ""), [1.0]);
    named.release().await?;
    orders.charge_lock(3)?.metric_name("from outside").acquire().await?.release().await?;
    assert_eq!(acquired("from outside", ""), [1.0]);
    locks.mutex("never a label").acquire().await?.release().await?;
    assert!(!prometheus().render().contains("never a label"));
    Ok(())
}

#[tokio::test]
async fn a_permit_with_a_slot_is_held_in_the_series_of_the_slot() -> R {
    prometheus();
    let locks = Locks::in_memory();
    let permit = || locks.permit("gpu", 3).metric_name("gpus");
    let held = |more: &[(&str, &str)]| {
        values("redis_locks_held", &[&[("lock", "gpus"), ("kind", "permit")], more].concat())
    };
    let (first, second) =
        (permit().slotted().acquire().await?, permit().slotted().acquire().await?);
    let plain = permit().acquire().await?;
    assert_eq!([held(&[("slot", "0")]), held(&[("slot", "1")])], [[1.0], [1.0]]);
    assert_eq!(held(&[]).into_iter().sum::<f64>(), 3.0, "a permit without a slot counts as well");
    first.release().await?;
    assert_eq!([held(&[("slot", "0")]), held(&[("slot", "1")])], [[0.0], [1.0]]);
    second.release().await?;
    plain.release().await?;
    assert_eq!(held(&[]), [0.0, 0.0, 0.0]);
    Ok(())
}

#[tokio::test]
async fn every_end_of_an_acquisition_counts_with_its_wait() -> R {
    prometheus();
    let ended = |outcome: &str| {
        let labels = [("lock", "ends"), ("outcome", outcome)];
        let waits = values("redis_locks_wait_seconds_count", &labels);
        if outcome != "acquired" {
            assert_eq!(values("redis_locks_failed_total", &labels), waits, "{outcome}");
        }
        waits.into_iter().sum::<f64>()
    };
    let locks = Locks::in_memory();
    let request = |key: &'static str| locks.mutex(key).metric_name("ends").max_waiters(1);
    let guard = request("k").acquire().await?;
    assert!(request("k").try_acquire().await?.is_none());
    let waiting = request("k").acquire();
    tokio::select! {
        biased;
        _ = waiting => panic!("the lock is held"),
        crowded = request("k").acquire() => assert!(crowded.is_err(), "one waits already"),
    }
    guard.release().await?;
    locks.shutdown().await;
    assert!(matches!(request("k").acquire().await, Err(LockError::Shutdown)));
    let counts = ["acquired", "busy", "crowded", "cancelled", "shutdown"].map(ended);
    assert_eq!(counts, [1.0, 1.0, 1.0, 1.0, 1.0]);
    Ok(())
}

#[tokio::test]
async fn a_failed_server_is_counted_with_the_kind_of_its_error() -> R {
    prometheus();
    let url = format!("redis://127.0.0.1:{}", testbed::free_port());
    let locks = Locks::builder().url(url).outage(Duration::from_millis(100)).open()?;
    assert!(locks.mutex("k").metric_name("down").acquire().await.is_err());
    let labels = [("lock", "down"), ("outcome", "backend"), ("reason", "unreachable")];
    assert_eq!(values("redis_locks_failed_total", &labels), [1.0]);
    Ok(())
}
