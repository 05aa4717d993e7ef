//! Listings: locks, one page after the other.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::future::join_all;

use crate::api::blocking::block_on;
use crate::domain::names::Names;
use crate::domain::status::{LockKind, LockStatus};
use crate::{LockError, Locks};

/// The locks that match a pattern, made by [`Locks::list`]: a [`Stream`]. Code without a stream
/// library calls [`next`](Self::next).
///
/// A page is fetched when the previous one has been read, so an idle listing costs the server nothing. It ends after
/// an error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut listing = redis_locks::Locks::in_memory().list("order:*");
/// assert!(listing.next().await.is_none());
/// # }
/// ```
#[must_use = "a listing asks for nothing until it is polled"]
pub struct Listing {
    locks: Locks,
    pattern: Names,
    found: VecDeque<LockStatus>,
    page: Option<PageFuture>,
    /// The cursor of the next page; `None` after the last one.
    next: Option<u64>,
    /// Those of a quorum that were shown, since each of its nodes names them.
    shown: BTreeSet<String>,
}

type PageFuture = Pin<Box<dyn Future<Output = Result<Page, LockError>> + Send>>;

/// What was found, and the cursor of the next page.
type Page = (Vec<LockStatus>, Option<u64>);

impl Listing {
    pub(crate) fn new(locks: Locks, pattern: Names) -> Self {
        Self {
            locks,
            pattern,
            found: VecDeque::new(),
            page: None,
            next: Some(0),
            shown: BTreeSet::new(),
        }
    }

    /// The next lock; `None` after the last one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let mut listing = redis_locks::Locks::in_memory().list("*");
    /// while let Some(status) = listing.next().await {
    ///     println!("{status:?}");
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Locks::status`]. The listing ends with it.
    ///
    /// # Cancel safety
    /// Nothing is skipped: a page that was asked for is still awaited by the next call.
    pub async fn next(&mut self) -> Option<Result<LockStatus, LockError>> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<LockStatus, LockError>>> {
        loop {
            if let Some(status) = self.found.pop_front() {
                return Poll::Ready(Some(Ok(status)));
            }
            let page = match (&mut self.page, self.next) {
                (Some(page), _) => page,
                (None, Some(cursor)) => {
                    let page = fetch(self.locks.clone(), self.pattern.clone(), cursor);
                    self.page.insert(Box::pin(page))
                }
                (None, None) => return Poll::Ready(None),
            };
            let page = ready!(page.as_mut().poll(context));
            self.page = None;
            match page {
                Ok((mut found, next)) => {
                    if self.locks.settings().rejoin.is_some() {
                        found.retain(|status| self.shown.insert(status.key.clone()));
                    }
                    self.found.extend(found);
                    self.next = next;
                }
                Err(error) => {
                    self.next = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl Stream for Listing {
    type Item = Result<LockStatus, LockError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<LockStatus, LockError>>> {
        self.poll(context)
    }
}

/// One page of keys, with the status of each. The looks are sent together.
async fn fetch(locks: Locks, pattern: Names, cursor: u64) -> Result<Page, LockError> {
    let (keys, next) = locks.scan(&pattern, cursor).await?;
    let namespace = &locks.settings().namespace;
    let looks = keys.into_iter().map(|key| locks.look(Names::new(namespace, key)));
    let mut found = Vec::new();
    for status in join_all(looks).await {
        let status = status?;
        // A key that is gone by now is no lock any more.
        if status.kind != LockKind::Free {
            found.push(status);
        }
    }
    Ok((found, next))
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("pattern", &self.pattern.main()).finish_non_exhaustive()
    }
}

/// [`Listing`] as an iterator that blocks; made by [`Locks::blocking_list`].
///
/// ```
/// for status in redis_locks::Locks::in_memory().blocking_list("order:*") {
///     println!("{status:?}");
/// }
/// ```
#[derive(Debug)]
#[must_use = "iterators do nothing until they are asked"]
pub struct BlockingListing {
    pub(crate) listing: Listing,
}

impl Iterator for BlockingListing {
    type Item = Result<LockStatus, LockError>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.listing.next())
    }
}
