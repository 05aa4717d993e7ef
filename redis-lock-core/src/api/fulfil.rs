//! The ways to fulfil a request: acquire, adopt, run, lead, and their blocking twins.

use std::time::Duration;

use crate::api::acquire;
use crate::api::nesting::Caller;
use crate::api::scope;
use crate::domain::demand::Adopted;
use crate::{ConfigError, Guard, LockError, LockRequest, LossReason, Token};

/// What [`LockRequest::run`] runs: an async closure, `async |guard| …`. Every `AsyncFnOnce(&Guard) -> T` is one.
#[diagnostic::on_unimplemented(
    message = "the body of `run` is an async closure that takes the guard",
    label = "write `async |guard| …`, or `async |_| …`"
)]
pub trait RunBody<T>: AsyncFnOnce(&Guard) -> T {}

#[diagnostic::do_not_recommend]
impl<T, F: AsyncFnOnce(&Guard) -> T> RunBody<T> for F {}

/// What [`LockRequest::lead`] runs each time that it is elected: an async closure, `async |guard| …`. Every
/// `AsyncFnMut(&Guard) -> T` is one.
#[diagnostic::on_unimplemented(
    message = "the body of `lead` is an async closure that takes the guard",
    label = "write `async |guard| …`, or `async |_| …`"
)]
pub trait LeadBody<T>: AsyncFnMut(&Guard) -> T {}

#[diagnostic::do_not_recommend]
impl<T, F: AsyncFnMut(&Guard) -> T> LeadBody<T> for F {}

impl LockRequest {
    /// Waits until the lock is acquired, for as long as [`wait`](Self::wait) allows, and returns the guard.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// // … one at a time, on all machines
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Busy`](LockError::Busy) when the wait ran out; [`Done`](LockError::Done) when an earlier call with
    /// [`once`](Self::once) succeeded; [`Crowded`](LockError::Crowded) when too many calls wait;
    /// [`Backend`](LockError::Backend) when the server failed; [`Reentrant`](LockError::Reentrant) when the enclosing
    /// body already holds the key (a guard of `acquire` does not count, because another task may release it);
    /// [`Shutdown`](LockError::Shutdown). [`InvalidKey`](LockError::InvalidKey) and
    /// [`InvalidConfig`](LockError::InvalidConfig) are returned before anything is sent.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue. A lock that was granted by then is released in the
    /// background. Nothing is left behind.
    pub async fn acquire(mut self) -> Result<Guard, LockError> {
        self.needs_guard()?;
        let mut begun = acquire::begin(&mut self, Caller::Task)?;
        drop(self);
        begun.granted().await
    }

    /// Makes one attempt: `None` if another holder has the lock.
    ///
    /// Keep the guard for as long as you need the lock, as `let Some(guard) = … else { … }` does. An
    /// `is_some()` on the result drops the guard, and the lock is released before the next line.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let Some(guard) = locks.mutex("report").try_acquire().await? else {
    ///     return Ok(()); // busy
    /// };
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), without `Busy`; [`Done`](LockError::Done) is an error here as well.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<Guard>, LockError> {
        unless_busy(self.no_wait().acquire().await)
    }

    /// Takes over the hold of a token that another guard returned from [`detach`](crate::Guard::detach). The hold
    /// gets a fresh lease, which is renewed as the request specifies.
    ///
    /// It never waits: either the token holds the lock, or it does not. Request the same kind as the guard had: a
    /// reader's token with [`read`](crate::Locks::read), a writer's with [`write`](crate::Locks::write). The limit of
    /// a permit may differ.
    ///
    /// Give a token to one adopter. Two adopters of one token share the hold: the first release ends it, and the
    /// other gets `Lost`. A [`downgrade`](crate::Guard::downgrade) by one counts for both. The fencing number, if the
    /// server still knows it, is at least that of each earlier guard of the hold, and less than that of the next
    /// hold.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let token = locks.mutex("order:42").acquire().await?.detach();
    /// // … in the process that got the token
    /// let guard = locks.mutex("order:42").adopt(token).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](LockError::Lost) when the token has lost the lock, or never had it at this key or as this kind.
    /// On a quorum it is also `Lost` when the lease of the guard has ended, by the clocks of the two machines.
    /// [`InvalidConfig`](LockError::InvalidConfig) when a lock with a lease is adopted as one that never
    /// expires. Otherwise as [`acquire`](Self::acquire), without `Busy`.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the token still has the lock and can be adopted.
    pub async fn adopt(mut self, token: Token) -> Result<Guard, LockError> {
        if token.is_lasting() {
            self = self.never_expires().linger(Duration::ZERO);
        } else if self.options.ttl.is_none() {
            let with = "never_expires where the token's lock has a lease";
            let advice = "give the request a ttl";
            return Err(ConfigError::Conflict { option: "adopt", with, advice }.into());
        }
        if let Some(key) = self.keys.as_slice().first().filter(|_| token.is_over()) {
            // Nothing is asked: another adopter may have the hold, and what is asked would have to be undone.
            return Err(LockError::Lost { key: key.to_string(), reason: LossReason::Expired });
        }
        let fence = acquire::fence_of(&self, &token).await?;
        self.options.adopts = Some(Box::new(Adopted { token: token.whole(), fence }));
        self.options.fenced = false;
        let guard = acquire::adopt(self)?.granted().await?;
        if token.is_over() {
            // Nodes of a quorum that had it late, or for longer, may agree again after others had the lock.
            return Err(guard.hold().lost_error(LossReason::Expired));
        }
        Ok(guard)
    }

    /// [`adopt`](Self::adopt) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let token = locks.mutex("order:42").blocking_acquire()?.detach();
    /// let guard = locks.mutex("order:42").blocking_adopt(token)?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    pub fn blocking_adopt(self, token: Token) -> Result<Guard, LockError> {
        crate::api::blocking::block_on(self.adopt(token))
    }

    /// Acquires the lock, runs `body` and releases the lock. The body is an async closure, or any other
    /// `AsyncFnOnce(&Guard) -> T`.
    ///
    /// If the lock is lost, the body is dropped the next time it yields, and not polled again. A value that comes
    /// back was computed while the lock was held.
    ///
    /// If the body returns a `Result` whose error is `From<LockError>`, write `….run(…).await?`: the `?` takes the
    /// outer error, and leaves the body's `Result`. To spawn the call, write `async move`: for a closure that
    /// borrows, the compiler can't prove yet that its futures are `Send`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let sum = locks.mutex("sum").run(async |guard| guard.key().len() + 1).await?;
    /// assert_eq!(sum, 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`Lost`](LockError::Lost).
    ///
    /// # Cancel safety
    /// Dropping the future drops the body, then releases the lock in the background.
    pub async fn run<T, F>(self, body: F) -> Result<T, LockError>
    where
        F: RunBody<T>,
    {
        self.remembers_nothing("run")?;
        let body = Box::new(body);
        let guard = self.acquire().await?;
        scope::run(guard, body).await
    }

    /// [`run`](Self::run) for a body that may fail. With [`once`](Self::once), its `Ok` is remembered, and its `Err`
    /// releases the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::error::Error;
    /// let locks = redis_locks::Locks::in_memory();
    /// let number: i32 =
    ///     locks.mutex("sum").try_run(async |_| Ok::<_, Box<dyn Error>>("4".parse()?)).await?;
    /// assert_eq!(number, 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of the body. If the server does not confirm that the success is remembered,
    /// the value is returned nevertheless, and a warning is logged.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run). What the body has returned by then is remembered.
    pub async fn try_run<T, E, F>(self, body: F) -> Result<T, E>
    where
        F: RunBody<Result<T, E>>,
        E: From<LockError>,
    {
        let body = Box::new(body);
        let guard = self.acquire().await?;
        scope::try_run(guard, body).await
    }

    /// Refuses what can't see whether its body has succeeded.
    fn remembers_nothing(&self, with: &'static str) -> Result<(), LockError> {
        let advice = "it can't see whether its body has succeeded, use try_run";
        if self.options.share {
            return Err(ConfigError::Conflict { option: "share", with, advice: "use call" }.into());
        }
        let refused = self
            .options
            .once
            .map(|_| ConfigError::Conflict { option: "once", with, advice }.into());
        refused.map_or(Ok(()), Err)
    }

    fn may_lead(&self, with: &'static str) -> Result<(), LockError> {
        self.remembers_nothing(with)?;
        let (option, advice) = ("newest", "a leader is to stay; use run");
        let refused = ConfigError::Conflict { option, with, advice };
        if self.options.newest { Err(refused.into()) } else { Ok(()) }
    }

    /// Leader election: of all processes that call this with the same key, one at a time runs `body`. The body is an
    /// async closure, or any other `AsyncFnMut(&Guard) -> T`.
    ///
    /// If the leader loses the lock, its body is dropped the next time it yields, and the call contends for the lock
    /// again. When it gets the lock, it calls `body` again. The call ends when a body ends. It survives outages,
    /// however long they last. A leader is renewed without a limit, unless the request sets
    /// [`max_hold`](Self::max_hold).
    ///
    /// To spawn the call, write `async move`: of a closure that borrows, the compiler can't tell yet that
    /// its futures are `Send`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # let mut queue = vec!["a", "b"];
    /// let done = locks
    ///     .mutex("dispatcher")
    ///     .lead(async |guard| {
    ///         let mut done = 0;
    ///         while let Some(job) = queue.pop() {
    ///             println!("{job}, under {}", guard.key());
    ///             done += 1;
    ///         }
    ///         done
    ///     })
    ///     .await?;
    /// assert_eq!(done, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), each time it contends: a wait that runs out is [`Busy`](LockError::Busy).
    /// [`Backend`](LockError::Backend) is returned only if trying again can't help, as with a missing right. After an
    /// outage, even a request with `no_wait` waits for up to a second. [`Lost`](LockError::Lost) if a body had ended
    /// before the loss was known. That body does not run again, because its effects may have happened.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn lead<T, F>(mut self, mut body: F) -> Result<T, LockError>
    where
        F: LeadBody<T>,
    {
        self.may_lead("lead")?;
        self.options.leads();
        loop {
            match self.clone().acquire().await {
                // Why it was lost has been reported by an event and a metric already.
                Ok(guard) => {
                    if let Some(outcome) = scope::lead(guard, &mut body).await {
                        return outcome;
                    }
                }
                Err(error) if error.is_busy() || !error.is_retryable() => return Err(error),
                // The engine waits for the server only for as long as the request waits for the lock.
                Err(_) => self.options.waits_at_least(Duration::from_secs(1)),
            }
        }
    }

    /// [`lead`](Self::lead) for code without an async runtime. A blocking body can't be dropped. After a loss it runs
    /// to its end unless it checks [`Guard::is_held`], and the call ends with [`Lost`](LockError::Lost).
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # let mut queue = vec!["a", "b"];
    /// let done = locks.mutex("dispatcher").blocking_lead(|guard| {
    ///     let mut done = 0;
    ///     while let Some(job) = queue.pop().filter(|_| guard.is_held()) {
    ///         println!("{job}");
    ///         done += 1;
    ///     }
    ///     done
    /// })?;
    /// assert_eq!(done, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`lead`](Self::lead).
    pub fn blocking_lead<T>(mut self, body: impl FnOnce(&Guard) -> T) -> Result<T, LockError> {
        self.may_lead("blocking_lead")?;
        self.options.leads();
        loop {
            match self.clone().blocking_acquire() {
                Ok(guard) => return scope::blocking_run(guard, body),
                Err(error) if error.is_busy() || !error.is_retryable() => return Err(error),
                // The engine waits for the server only for as long as the request waits for the lock.
                Err(_) => self.options.waits_at_least(Duration::from_secs(1)),
            }
        }
    }

    /// [`acquire`](Self::acquire) for code without an async runtime. Inside a runtime it blocks
    /// the thread. With several workers, the others take over the thread's tasks. On a
    /// current-thread runtime, all tasks stop until the lock is acquired.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// guard.blocking_release()?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire). It is [`Reentrant`](LockError::Reentrant), too, if another task of a
    /// current-thread runtime has taken the lock on this thread. That task can't run while this call
    /// blocks the thread, so a wait without a limit would never end.
    pub fn blocking_acquire(self) -> Result<Guard, LockError> {
        acquire::blocking(self)
    }

    /// [`try_acquire`](Self::try_acquire) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let _held = locks.mutex("report").blocking_acquire()?;
    /// assert!(locks.mutex("report").blocking_try_acquire()?.is_none());
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn blocking_try_acquire(self) -> Result<Option<Guard>, LockError> {
        unless_busy(self.no_wait().blocking_acquire())
    }

    /// [`run`](Self::run) for code without an async runtime. The body runs to its end. If the
    /// lock was lost by then, [`Lost`](LockError::Lost) replaces its value.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let length = locks.mutex("report").blocking_run(|guard| guard.key().len())?;
    /// assert_eq!(length, 6);
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn blocking_run<T>(self, body: impl FnOnce(&Guard) -> T) -> Result<T, LockError> {
        self.remembers_nothing("blocking_run")?;
        let guard = self.blocking_acquire()?;
        scope::blocking_run(guard, body)
    }

    /// [`try_run`](Self::try_run) for code without an async runtime. The body runs to its end. If the
    /// lock was lost by then, [`Lost`](LockError::Lost) replaces its success.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// # use std::error::Error;
    /// let sum = locks.mutex("sum").blocking_try_run(|_| Ok::<u32, Box<dyn Error>>("4".parse()?))?;
    /// assert_eq!(sum, 4);
    /// # Ok::<_, Box<dyn Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_run`](Self::try_run).
    pub fn blocking_try_run<T, E: From<LockError>>(
        self,
        body: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, E> {
        let guard = self.blocking_acquire()?;
        scope::blocking_try_run(guard, body)
    }
}

fn unless_busy(acquired: Result<Guard, LockError>) -> Result<Option<Guard>, LockError> {
    match acquired {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.is_busy() => Ok(None),
        Err(error) => Err(error),
    }
}
