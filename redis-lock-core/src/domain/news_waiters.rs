//! Those who wait for the same news.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use tokio::sync::Notify;

/// Those who wait for the same news. Their wakers are the user's code and may block, so each is woken by
/// itself.
#[derive(Debug, Default)]
pub(crate) struct NewsWaiters {
    news: Notify,
    count: AtomicUsize,
}

impl NewsWaiters {
    /// Looks now, and each time when there is news, until there is a result.
    pub(crate) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        // What is there already needs no lock: a thread of a parent process may have had that at a fork.
        if let Some(result) = look() {
            return result;
        }
        let _counted = Counted::among(&self.count);
        loop {
            let mut news = pin!(self.news.notified());
            // It is in the line before it looks. So the news is seen, or it is counted and woken.
            news.as_mut().enable();
            if let Some(result) = look() {
                return result;
            }
            news.await;
        }
    }

    /// How many of them have to be woken by news of now.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes the one that has waited longest.
    pub(crate) fn wake_one(&self) {
        self.news.notify_one();
    }
}

/// Wakes one of them.
impl Wake for NewsWaiters {
    fn wake(self: Arc<Self>) {
        self.wake_one();
    }
}

/// One who waits, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn among(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    /// In a forked child another thread of the parent may have had the lock of the line.
    #[test]
    fn news_that_are_there_are_read_without_the_line() {
        let waiters = NewsWaiters::default();
        let looking = waiters.until(|| {
            assert_eq!(waiters.count(), 0, "it is in the line already");
            Some(())
        });
        assert_eq!(pin!(looking).now_or_never(), Some(()));
    }
}
