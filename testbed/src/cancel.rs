use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Polls `future` at most `polls` times; at the wake-up after that it is dropped unpolled.
/// `Some` if it finished before.
///
/// This is how a future loses in `select!`: what it waited for *has* arrived, and the future is not
/// polled again. Taking 0, 1, 2, … polls until the answer is `Some` visits every await.
pub async fn cancel_at<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    cancel(polls, future, false).await
}

/// Polls `future` at most `polls` times and drops it at once after the last, while what it waits
/// for is still on its way. `Some` if it finished before.
pub async fn cancel_in_flight<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    cancel(polls, future, true).await
}

async fn cancel<F: Future>(polls: usize, future: F, at_once: bool) -> Option<F::Output> {
    let mut future: Pin<Box<F>> = Box::pin(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if left == 0 && at_once => Poll::Ready(None),
            other => other.map(Some),
        }
    })
    .await
}
