//! Waits for a future on the calling thread.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{self, coop};

use super::parker::Parker;
use crate::engine::BlockingCall;

/// After waiting this long, a worker thread hands its other tasks over.
const BRIEF: Duration = Duration::from_millis(10);

/// After waiting this long, a call that blocks what it waits for is warned of.
const LONG: Duration = Duration::from_secs(1);

/// Tokio's default names of worker threads and threads for blocking work.
const TOKIO_NAMES: [&str; 2] = ["tokio-rt-worker", "tokio-runtime-worker"];

/// Runs `future` on this thread. The engine has its own thread, so this thread is always woken. A
/// worker of a multi-threaded runtime hands its other tasks over first.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_or(future, || ())
}

/// [`block_on`], and `waits_long` when the future is not ready after a second, and the other tasks of the
/// thread were not handed over.
pub(crate) fn block_on_or<F: Future>(future: F, waits_long: impl FnOnce()) -> F::Output {
    // This thread may be a task, and a task whose budget is used up is woken after it has yielded, which
    // it can't do here.
    let mut future = pin!(coop::unconstrained(future));
    if let Some(output) = park(future.as_mut(), Some(BRIEF)) {
        return output;
    }
    let mut waits_long = Some(waits_long);
    let mut wait = |is_handed_over: bool| {
        if !is_handed_over {
            if let Some(output) = park(future.as_mut(), Some(LONG)) {
                return output;
            }
            if let Some(waits_long) = waits_long.take() {
                waits_long();
            }
        }
        park_until_ready(future.as_mut())
    };
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if may_hand_over() => in_place(wait),
        _ => wait(false),
    }
}

/// Whether this thread may be the only one of its runtime. A thread for blocking work delays no other task.
pub(crate) fn may_stall_runtime() -> bool {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    let is_of_tokio = || thread::current().name().is_some_and(|name| TOKIO_NAMES.contains(&name));
    matches!(flavor, Ok(RuntimeFlavor::CurrentThread)) && !is_of_tokio()
}

thread_local! {
    /// The last task for which `block_in_place` has panicked here. A task of a `LocalSet` stays one, so
    /// it would panic each time, and the panic hook would print a message each time.
    static REFUSED: Cell<Option<task::Id>> = const { Cell::new(None) };
}

/// Whether this is likely a task of a multi-threaded runtime, and not one of a `LocalSet`, which can't
/// be handed over. Most of those run on the main thread. Where a panic ends the program, none is
/// handed over, because Tokio does not tell them apart.
fn may_hand_over() -> bool {
    let task = task::try_id();
    !cfg!(panic = "abort")
        && task.is_some()
        && task != REFUSED.get()
        && thread::current().name() != Some("main")
}

/// Calls `block_in_place` if that is allowed, and tells `work` whether it was. In a `LocalSet` it panics before
/// it begins, and there is no other way to find out.
fn in_place<R>(mut work: impl FnMut(bool) -> R) -> R {
    let mut has_begun = false;
    let mut run = || {
        has_begun = true;
        work(true)
    };
    match catch_unwind(AssertUnwindSafe(|| task::block_in_place(&mut run))) {
        Ok(value) => value,
        Err(panic) if has_begun => resume_unwind(panic),
        Err(_) => {
            REFUSED.set(task::try_id());
            work(false)
        }
    }
}

fn park_until_ready<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    loop {
        if let Some(output) = park(future.as_mut(), None) {
            return output;
        }
    }
}

/// Polls until the future is ready, or `limit` has passed.
fn park<F: Future>(mut future: Pin<&mut F>, limit: Option<Duration>) -> Option<F::Output> {
    let _call = BlockingCall::begin();
    let parker = Arc::new(Parker::new());
    let waker = Arc::clone(&parker).into();
    let mut context = Context::from_waker(&waker);
    let mut end = None;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let Some(limit) = limit else {
            parker.park(None);
            continue;
        };
        let end = *end.get_or_insert_with(|| Instant::now() + limit);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        parker.park(Some(left));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn that_a_call_waits_long_is_known_after_a_second() {
        let (begun, known_after) = (Instant::now(), Cell::new(None));
        let is_known = |_: &mut Context<'_>| match known_after.get() {
            Some(after) => Poll::Ready(after),
            None => Poll::Pending,
        };
        let after = block_on_or(poll_fn(is_known), || known_after.set(Some(begun.elapsed())));
        assert!(after >= LONG, "{after:?}");
    }
}
