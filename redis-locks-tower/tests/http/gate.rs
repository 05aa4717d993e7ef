//! A handler that a test can hold up, and that notes how far it came.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    entered: AtomicUsize,
    passed: AtomicUsize,
    dropped: AtomicUsize,
    permits: Semaphore,
}

/// Notes when a handler ends before its last statement.
struct Visit<'a>(&'a Inside);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Gate {
    pub(crate) fn shut() -> Self {
        let zero = AtomicUsize::default;
        let permits = Semaphore::new(0);
        Self(Arc::new(Inside { entered: zero(), passed: zero(), dropped: zero(), permits }))
    }

    pub(crate) fn open() -> Self {
        let gate = Self::shut();
        gate.let_pass(10_000);
        gate
    }

    pub(crate) fn let_pass(&self, visits: usize) {
        self.0.permits.add_permits(visits);
    }

    /// What the handler awaits.
    pub(crate) async fn pass(&self) {
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let visit = Visit(&self.0);
        self.0.permits.acquire().await.unwrap().forget();
        std::mem::forget(visit);
        self.0.passed.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn entered(&self) -> usize {
        self.0.entered.load(Ordering::SeqCst)
    }

    pub(crate) fn passed(&self) -> usize {
        self.0.passed.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::SeqCst)
    }
}
