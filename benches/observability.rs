//! What spans, events and numbers cost: pairs of acquire and release in memory, where nothing else
//! takes long. `docs/OBSERVABILITY.md` has the commands and the figures.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use redis_locks::Locks;
use tokio::runtime::{Builder, Runtime};

/// The features that this program was built with.
const BUILT: &str = match (cfg!(feature = "tracing"), cfg!(feature = "metrics")) {
    (false, false) => "neither",
    (true, false) => "tracing",
    (false, true) => "metrics",
    (true, true) => "both",
};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// One task takes and gives back a free lock: by way of the engine's thread. With a name, the numbers are
/// labelled.
fn pair(criterion: &mut Criterion, listener: &str, name: &'static str) {
    let locks = Locks::in_memory();
    let runtime = runtime();
    criterion.bench_function(&format!("pair/{BUILT}, {listener}"), |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let guard = locks.mutex("pair").metric_name(name).acquire().await.unwrap();
                black_box(&guard);
                guard.release().await.unwrap();
            });
        });
    });
}

/// A hundred tasks of one thread hand the lock on among themselves: a hundred pairs, almost
/// without the engine's thread.
fn hand_over(criterion: &mut Criterion, listener: &str) {
    let locks = Arc::new(Locks::in_memory());
    let runtime = runtime();
    criterion.bench_function(&format!("100 hand-overs/{BUILT}, {listener}"), |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let tasks: Vec<_> = (0..100)
                    .map(|_| {
                        let locks = Arc::clone(&locks);
                        tokio::spawn(async move {
                            drop(black_box(locks.mutex("hand-over").acquire().await.unwrap()));
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    });
}

fn silent(criterion: &mut Criterion) {
    pair(criterion, "no subscriber", "");
    hand_over(criterion, "no subscriber");
}

fn listened(criterion: &mut Criterion) {
    if BUILT == "neither" {
        return;
    }
    listener::install();
    pair(criterion, "all is reported", "");
    pair(criterion, "all is reported, by name", "the name of a lock");
    hand_over(criterion, "all is reported");
}

/// Listeners that ask for everything and keep nothing, so that only the cost of reporting is
/// measured.
mod listener {
    pub(super) fn install() {
        #[cfg(feature = "tracing")]
        tracing::subscriber::set_global_default(Deaf).unwrap();
        #[cfg(feature = "metrics")]
        metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder().unwrap();
    }

    #[cfg(feature = "tracing")]
    struct Deaf;

    #[cfg(feature = "tracing")]
    impl tracing::Subscriber for Deaf {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
            tracing::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {}
        fn enter(&self, _: &tracing::Id) {}
        fn exit(&self, _: &tracing::Id) {}
    }
}

criterion_group!(benches, silent, listened);
criterion_main!(benches);
