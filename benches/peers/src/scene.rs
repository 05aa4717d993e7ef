//! What a measurement takes place on.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::Server;
use tokio::runtime::Runtime;

/// A lease that nothing but a crash lets run out.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// One server, and how much time there is.
pub(crate) struct Scene<'a> {
    pub(crate) server: &'a Server,
    pub(crate) quick: bool,
}

impl Scene<'_> {
    /// How long to measure: a publishable figure takes longer than a first look.
    pub(crate) fn lasting(&self, full: u64, quick: u64) -> Duration {
        Duration::from_millis(if self.quick { quick } else { full })
    }

    pub(crate) fn times(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Leaves nothing of the last measurement on the server.
    pub(crate) fn clear(&self) {
        self.server.run::<()>("FLUSHALL");
    }
}

/// The runtime of every measurement and every child: two workers.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("a runtime can't be built")
}

/// Runs it on one of the runtime's workers: the thread that calls is none of them, and would have
/// to be woken by them.
pub(crate) fn on_worker<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    runtime.block_on(async { tokio::spawn(work).await.context("a measurement panicked")? })
}

/// Ends a runtime, without patience for what a library has left running on it.
pub(crate) fn end(runtime: Runtime) {
    runtime.shutdown_timeout(Duration::from_secs(2));
}
