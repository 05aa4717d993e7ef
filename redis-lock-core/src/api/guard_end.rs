//! The end of a hold: giving the lock back, ending it with success, and passing it on.

use tokio::sync::oneshot;

use crate::api::blocking::block_on;
use crate::api::guard::Guard;
use crate::domain::clock::Moment;
use crate::domain::config_error::NOT_ONCE;
use crate::domain::env;
use crate::domain::value::Finish;
use crate::lock::Confirm;
use crate::{LockError, Token, observe};

impl Guard {
    /// Releases the lock and waits for the server's confirmation.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// guard.release().await?; // `Lost` if the lock was lost before
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](LockError::Lost) when the lock was lost before; nothing was released then.
    /// [`Backend`](LockError::Backend) when the server did not confirm it within the command
    /// timeout; the engine keeps trying until the lease ends.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), LockError> {
        // The outer hold may have been lost before, which has to be reported. If it ends from here
        // on, that does no harm.
        let ended = self.joined.as_ref().and_then(|_| self.loss());
        let outcome = self.released(&Finish::Release).await;
        ended.map_or(outcome, Err)
    }

    /// Ends the hold with success, for a request with [`once`](crate::LockRequest::once): other calls get
    /// [`Done`](LockError::Done) until the period ends. If the period is over already, it only releases the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// use std::time::Duration;
    /// let import = locks.mutex("import:2026-01-31").once(Duration::from_secs(24 * 60 * 60));
    /// let guard = import.clone().acquire().await?;
    /// println!("importing");
    /// guard.complete().await?;
    /// assert!(import.acquire().await.is_err(), "it is done");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](LockError::Lost) when the lock was lost, so another call may do the work again.
    /// [`Backend`](LockError::Backend) when the server did not confirm it within the command timeout; the
    /// engine keeps trying until the lease ends. [`InvalidConfig`](LockError::InvalidConfig) for a
    /// lock without `once`, which is released.
    ///
    /// # Cancel safety
    /// After the first poll it continues in the background. If it is dropped before that, it releases the lock
    /// as a dropped guard does, and no success is recorded.
    pub async fn complete(self) -> Result<(), LockError> {
        if !self.completes() {
            return Err(NOT_ONCE.into());
        }
        self.released(&Finish::Complete(None)).await
    }

    /// [`complete`](Self::complete) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let import = locks.mutex("import:2026-01-31").once(std::time::Duration::from_secs(86_400));
    /// import.clone().blocking_acquire()?.blocking_complete()?;
    /// assert!(import.blocking_acquire().is_err(), "it is done");
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn blocking_complete(self) -> Result<(), LockError> {
        block_on(self.complete())
    }

    /// The largest value that it stores.
    #[cfg(feature = "serde")]
    pub(crate) fn largest_value(&self) -> usize {
        self.locks.settings().largest_value
    }

    /// Whether it can end like that.
    pub(crate) fn can(&self, finish: &Finish) -> bool {
        match finish {
            Finish::Release => false,
            Finish::Complete(_) => self.completes(),
            Finish::Share(_) => self.joined.is_none() && self.hold.demand.terms.share,
        }
    }

    /// Whether success under it is remembered.
    pub(crate) fn completes(&self) -> bool {
        self.joined.is_none() && self.hold.demand.terms.once.is_some()
    }

    /// Releases the lock without waiting, like dropping the guard.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// guard.release_in_background();
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    pub fn release_in_background(self) {
        drop(self);
    }

    /// Passes the lock on: the guard ends without a release, and the token can be
    /// [adopted](crate::LockRequest::adopt), in this process or in another one.
    ///
    /// Renewal stops, so the token must be adopted before the lease ends. Otherwise the lock becomes free. On a
    /// quorum, the token contains that time, by this machine's clock. A lock that [never
    /// expires](crate::LockRequest::never_expires) waits for its adopter without a limit.
    ///
    /// Always send the token that this returns, not that of [`token`](Self::token): it carries the
    /// state of commands that are still in flight.
    ///
    /// The token can't be adopted if the lock was lost, or if the guard [joined](crate::LockRequest::reentrant) an
    /// outer hold, which keeps the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let token = locks.mutex("order:42").acquire().await?.detach();
    /// let text = token.to_string(); // … travels to another process …
    /// let guard = locks.mutex("order:42").adopt(text.parse()?).await?;
    /// # guard.release().await }
    /// ```
    #[must_use = "without its token the lock stays until its lease ends"]
    pub fn detach(self) -> Token {
        let given = match self.joined {
            Some(_) => None,
            None => {
                // What the majority has not waited for may reach the last node after its release.
                let is_quorum = self.locks.settings().rejoin.is_some();
                let end = is_quorum.then(|| env::wall().checked_add(self.remaining())).flatten();
                let token = self.locks.link().detach(&self.id, &self.hold, is_quorum);
                token.map(|token| token.ending(end))
            }
        };
        // A lost lock may have a release on its way, which would end the hold of an adopter.
        given.unwrap_or_else(|| self.token().as_new())
    }

    /// [`release`](Self::release) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// locks.mutex("report").blocking_acquire()?.blocking_release()?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn blocking_release(self) -> Result<(), LockError> {
        block_on(self.release())
    }

    /// [`release`](Self::release), or [`complete`](Self::complete), where others still refer to the guard.
    pub(crate) async fn released(&self, finish: &Finish) -> Result<(), LockError> {
        let shares = matches!(finish, Finish::Share(_));
        let mut sharing = shares.then_some(SharingGuard { guard: self, is_good: false });
        let mut answer = None;
        let known = self.give_back(finish, || {
            let (confirm, confirmed) = oneshot::channel();
            answer = Some(confirmed);
            Some(confirm)
        });
        let outcome = match (known, answer) {
            (Some(outcome), _) => outcome,
            (None, Some(answer)) => {
                let outcome = answer.await.unwrap_or(Err(LockError::Shutdown));
                if let Err(LockError::Lost { reason, .. }) = &outcome {
                    observe::found_lost(self.hold.described(), reason);
                }
                outcome
            }
            (None, None) => Err(LockError::Shutdown),
        };
        let outcome = outcome.map_err(|error| error.at(&self.locks.settings().server));
        let lost = self.joined.as_ref().and_then(|_| self.hold.loss(Moment::now()));
        let outcome = lost.map_or(outcome, |reason| Err(self.hold.lost_error(reason)));
        if let Some(sharing) = &mut sharing {
            sharing.is_good = outcome.is_ok();
        }
        outcome
    }

    /// Releases the lock, or completes it. Returns the outcome if it is known at once. Otherwise `confirm` makes what the
    /// outcome is reported to.
    pub(crate) fn give_back(
        &self,
        finish: &Finish,
        confirm: impl FnOnce() -> Option<Confirm>,
    ) -> Option<Result<(), LockError>> {
        match &self.joined {
            Some(joined) => joined.guard.give_back(finish, confirm),
            None => self.locks.link().release(&self.id, &self.hold, finish, confirm),
        }
    }
}

/// Tells the waiters of this process how the call ended whose value they wait for, even if it was dropped.
struct SharingGuard<'a> {
    guard: &'a Guard,
    /// Whether that call gets its own value.
    is_good: bool,
}

impl Drop for SharingGuard<'_> {
    fn drop(&mut self) {
        let Guard { locks, id, hold, .. } = self.guard;
        locks.link().ask(id, |machine, env| machine.on_share_end(hold, self.is_good, env));
    }
}
