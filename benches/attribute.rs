//! Pairs of acquire and release, by the attribute and by the requests that it makes, on locks in
//! memory: what the attribute itself costs.
//!
//! `cargo bench --bench attribute`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use redis_locks::{LockError, LockKey, Locks, redis_lock};

#[redis_lock(key = "constant", via = locks)]
async fn constant(locks: &Locks, n: u64) -> Result<u64, LockError> {
    Ok(n + 1)
}

#[redis_lock(key = "order:{n}", via = locks)]
async fn rendered(locks: &Locks, n: u64) -> Result<u64, LockError> {
    Ok(n + 1)
}

#[redis_lock(key = "constant", via = locks)]
async fn boxed(locks: &Locks, n: [u64; 1]) -> Result<u64, LockError> {
    Ok(n[0] + 1)
}

#[redis_lock(key = "constant", via = locks)]
fn blocking(locks: &Locks, n: u64) -> Result<u64, LockError> {
    Ok(n + 1)
}

fn pairs(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let locks = &Locks::in_memory();
    let mut group = criterion.benchmark_group("attribute");
    group.bench_function("direct, constant key", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let request = locks.mutex(LockKey::from_static("constant"));
                request.run(async |_| black_box(1) + 1).await
            })
        });
    });
    group.bench_function("attribute, constant key", |bencher| {
        bencher.iter(|| runtime.block_on(constant(locks, black_box(1))));
    });
    group.bench_function("attribute, constant key, boxed", |bencher| {
        bencher.iter(|| runtime.block_on(boxed(locks, black_box([1]))));
    });
    group.bench_function("direct, rendered key", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let request = locks.mutex(format!("order:{}", black_box(1)));
                request.run(async |_| black_box(1) + 1).await
            })
        });
    });
    group.bench_function("attribute, rendered key", |bencher| {
        bencher.iter(|| runtime.block_on(rendered(locks, black_box(1))));
    });
    group.bench_function("direct, blocking", |bencher| {
        bencher.iter(|| {
            let request = locks.mutex(LockKey::from_static("constant"));
            request.blocking_run(|_| black_box(1) + 1)
        });
    });
    group.bench_function("attribute, blocking", |bencher| {
        bencher.iter(|| blocking(locks, black_box(1)));
    });
    group.finish();
}

criterion_group!(benches, pairs);
criterion_main!(benches);
