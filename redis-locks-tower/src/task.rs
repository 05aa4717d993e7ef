//! Work that continues when its client hangs up.

use std::future::pending;
use std::mem;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

/// The service that has said that it is ready. A clone, which need not be, takes its place.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let next = service.clone();
    mem::replace(service, next)
}

/// Said by the work when its effects begin. From then on it runs to its end.
#[derive(Debug)]
pub(crate) struct Start(Arc<AtomicBool>);

impl Start {
    /// Returns when the work may begin, which is at once. If its client has hung up before, the task ends here.
    pub(crate) async fn begin(self) {
        if self.0.swap(true, Ordering::AcqRel) {
            pending().await
        }
    }
}

/// A waiting client. If it hangs up before the work has begun, the work is dropped.
struct Client {
    has_begun: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.has_begun.swap(true, Ordering::AcqRel) {
            self.task.abort();
        }
    }
}

/// Runs `work` in a separate task, and waits for it. `None` when the runtime ended the task.
pub(crate) async fn in_task<T, W>(work: impl FnOnce(Start) -> W) -> Option<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let has_begun = Arc::new(AtomicBool::new(false));
    let work = work(Start(Arc::clone(&has_begun)));
    #[cfg(feature = "tracing")]
    let work = tracing::Instrument::in_current_span(work);
    let task = tokio::spawn(work);
    let _client = Client { has_begun, task: task.abort_handle() };
    match task.await {
        Ok(outcome) => Some(outcome),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => None,
        },
    }
}
