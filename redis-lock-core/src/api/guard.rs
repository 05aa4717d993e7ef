//! The proof that a lock is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::oneshot;

use crate::api::blocking::block_on;
use crate::api::note::{JoinedTurn, Note};
use crate::domain::checks::{check_ttl, needs_ttl};
use crate::domain::clock::Moment;
use crate::domain::config_error::check_rejoin;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::value::Finish;
use crate::engine::LockId;
use crate::lock::Wants;
use crate::lock::hold::Hold;
use crate::{ConfigError, LockError, LockState, Locks, LossReason, Token};

/// Keep it for as long as you need the lock, then [`release`](Self::release) or drop it.
///
/// It is `Send + Sync + 'static`: move it to another task or thread, or keep it in a struct.
///
/// The engine renews the lease in the background, whatever the caller's runtime is doing. The guard knows its state
/// locally, without a round trip, and errs on the safe side: if the lease could not be renewed in time, the lock
/// counts as lost before the server frees it.
///
/// Bind it to a name: `let guard = …`. With `let _ = …` it is dropped at once; the lint `let_underscore_drop` warns
/// of that.
///
/// Dropping the guard releases the lock in the background, from any context: inside or outside a
/// runtime, while panicking, after the runtime is gone. [`release`](Self::release) waits for the
/// server's confirmation.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redis_locks::LockError> {
/// let locks = redis_locks::Locks::in_memory();
/// let guard = locks.mutex("order:42").acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a guard that is not bound to a name releases the lock at once; write `let guard = …`, not `let _ = …`"]
#[clippy::has_significant_drop]
pub struct Guard {
    pub(super) locks: Locks,
    pub(super) id: LockId,
    pub(super) hold: Arc<Hold>,
    /// For a guard that joined an outer hold.
    pub(super) joined: Option<Box<Joined>>,
}

/// The additional parts of a guard that joined an outer hold.
pub(super) struct Joined {
    /// Holds its turn among all guards that joined that hold.
    pub(super) guard: Guard,
    turn: Arc<JoinedTurn>,
}

impl Guard {
    pub(crate) fn new(locks: Locks, id: LockId, hold: Arc<Hold>) -> Self {
        Self { locks, id, hold, joined: None }
    }

    /// A guard that shares an outer hold and releases only its turn.
    pub(crate) fn joined(
        locks: Locks,
        id: LockId,
        hold: Arc<Hold>,
        guard: Self,
        outer: Option<Arc<JoinedTurn>>,
    ) -> Self {
        let turn = Arc::new(JoinedTurn { hold: Arc::clone(&guard.hold), outer });
        Self { locks, id, hold, joined: Some(Box::new(Joined { guard, turn })) }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Whether it joined an outer hold.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// What nested calls need to know about this hold.
    pub(crate) fn note(&self) -> Note {
        Note::new(
            &self.locks,
            &self.id,
            &self.hold,
            self.joined.as_ref().map(|joined| &joined.turn),
        )
    }

    /// The loss, if the lock is lost.
    pub(crate) fn loss(&self) -> Option<LockError> {
        let reason = self.end()?;
        Some(self.hold.lost_error(reason))
    }

    /// Why it has lost the lock, unless it was released itself. A guard that joined others ends with any
    /// of them.
    fn end(&self) -> Option<LossReason> {
        let now = Moment::now();
        match &self.joined {
            None => self.hold.loss(now),
            Some(joined) => joined.around(&self.hold).find_map(|hold| hold.end(now)),
        }
    }

    /// The locked key. Several keys are separated by commas.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.demand.key()
    }

    /// Each of the keys, in the order of their names.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let guard = redis_locks::Locks::in_memory().all(["b", "a"]).blocking_acquire()?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), ["a", "b"]);
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.hold.demand.names.all().map(Names::own_key)
    }

    /// The token that identifies this hold on the server, as [`status`](crate::Locks::status) shows it.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.hold.token
    }

    /// The fencing number to pass to the store; `Some` if the request was [`fenced`](crate::LockRequest::fenced).
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let first = locks.mutex("report").fenced().blocking_acquire()?.fence();
    /// let second = locks.mutex("report").fenced().blocking_acquire()?.fence();
    /// assert!(second > first);
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.hold.fence
    }

    /// The number of a [`slotted`](crate::LockRequest::slotted) permit, which no other valid holder has.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.hold.slot
    }

    /// [`fence`](Self::fence) for a column of a database: `BIGINT` has a sign in most of them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("account:7").fenced().acquire().await?;
    /// let fence: i64 = guard.fence_i64()?; // UPDATE account SET fence = $1 WHERE id = $2 AND fence <= $1
    /// # assert!(fence > 0);
    /// # guard.release().await }
    /// ```
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig) when the hold has no fencing number, or a number that
    /// does not fit into an `i64`.
    pub fn fence_i64(&self) -> Result<i64, LockError> {
        let (option, needs, advice) = ("fence_i64", "a fencing number", "ask for one by `fenced`");
        let fence = self.fence().ok_or(ConfigError::Requires { option, needs, advice })?;
        let (option, advice) = ("a fencing number", "set the counter on the server lower");
        i64::try_from(fence)
            .map_err(|_| ConfigError::TooLarge { option, given: fence, advice }.into())
    }

    /// The state of the hold as the engine knows it, without asking the server.
    #[must_use]
    pub fn state(&self) -> LockState {
        match &self.joined {
            Some(joined) if joined.guard.state() == LockState::Released => LockState::Released,
            Some(_) if self.end().is_some() => LockState::Lost,
            _ => self.hold.state(Moment::now()),
        }
    }

    /// Whether the lease still runs, without asking the server.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// for part in (0..3).take_while(|_| guard.is_held()) {
    ///     println!("part {part}");
    /// }
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state(), LockState::Held | LockState::Uncertain)
    }

    /// Whether a newer call waits for this one to end. It does not ask the server. Always `false` without
    /// [`newest`](crate::LockRequest::newest), and for a call that had to continue without it, for example
    /// because its first answer was lost.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("preview").newest().blocking_acquire()?;
    /// assert!(!guard.is_superseded()); // ask between two steps of a blocking body
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.hold.is_superseded()
    }

    /// Waits until a newer call has come, for code that must clean up before it releases the lock. It never
    /// resolves where [`is_superseded`](Self::is_superseded) is always `false`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # async fn render() {}
    /// let guard = locks.mutex("preview").newest().acquire().await?;
    /// tokio::select! {
    ///     () = render() => println!("rendered"),
    ///     () = guard.superseded() => println!("a newer call waits"),
    /// }
    /// # guard.release().await }
    /// ```
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn superseded(&self) {
        self.hold.superseded().await;
    }

    /// How much of the lease is left if no further renewal succeeds. Zero once the lock is lost.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// assert!(guard.remaining().as_secs() >= 28); // of 30 s, less 1 % and 2 ms
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.joined.is_some() && self.end().is_some() {
            return Duration::ZERO;
        }
        self.hold.remaining(Moment::now())
    }

    /// Fails unless at least `need` of the lease is left. Call it right before an effect that takes about that
    /// long and can't be undone. It does not ask the server.
    ///
    /// Even with renewal, a third of the ttl and a round trip may have passed. So never ask for more than 3/5 of the
    /// ttl.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").ttl(std::time::Duration::from_secs(30)).blocking_acquire()?;
    /// guard.ensure(std::time::Duration::from_secs(5))?; // then the effect that takes 5 s
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`Lost`](LockError::Lost) when the lock is lost; [`TooShort`](LockError::TooShort) when it is held
    /// and less than `need` is left.
    pub fn ensure(&self, need: Duration) -> Result<(), LockError> {
        if let Some(error) = self.loss() {
            return Err(error);
        }
        let remaining = self.remaining();
        if remaining.is_zero() {
            // It was released, or has ended since.
            return Err(self.loss().unwrap_or_else(|| self.hold.lost_error(LossReason::Expired)));
        }
        if remaining < need {
            return Err(LockError::TooShort { key: self.key().into(), remaining, needed: need });
        }
        Ok(())
    }

    /// Asks the server whether this guard still holds the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// guard.verify().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](LockError::Lost) when it is not, [`Backend`](LockError::Backend) when the server
    /// could not be asked; the guard's state is still good in that case.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn verify(&self) -> Result<(), LockError> {
        self.confirmed(Wants::Check).await
    }

    /// Asks for a lease of at least `ttl`, and renews with this ttl from now on.
    ///
    /// It never shortens the lease, and does not lengthen it beyond [`max_hold`](crate::LockRequest::max_hold),
    /// which is 24 hours unless the request says otherwise.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// use std::time::Duration;
    /// let guard = locks.mutex("report").ttl(Duration::from_secs(30)).acquire().await?;
    /// // A step that no renewal may interrupt, such as a freeze of the machine.
    /// guard.extend(Duration::from_secs(300)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(250));
    /// # guard.release().await }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](LockError::Lost) when the lock is lost; [`Backend`](LockError::Backend) when the server
    /// could not be asked, with the old lease still running;
    /// [`InvalidConfig`](LockError::InvalidConfig) for a ttl below 100 ms or above 100 years.
    ///
    /// # Cancel safety
    /// The lease may have been extended or not; the lock stays held.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        check_ttl("ttl", ttl)?;
        if let Some(rejoin) = self.locks.settings().rejoin {
            check_rejoin(ttl, Some(self.hold.demand.terms.margin), rejoin)?;
        }
        let ttl = crate::domain::lease::whole_millis(ttl);
        if self.hold.demand.terms.ttl.is_none() {
            return needs_ttl("extend");
        }
        self.confirmed(Wants::Extend(ttl)).await
    }

    /// Turns a writer's hold into a reader's. No writer gets in between, and waiting readers get the lock. The token,
    /// the fencing number and the lease don't change.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let writer = locks.write("catalog").acquire().await?;
    /// let reader = writer.downgrade().await?;
    /// let _other = locks.read("catalog").acquire().await?;
    /// # reader.release().await }
    /// ```
    ///
    /// # Errors
    /// [`WrongHold`](LockError::WrongHold) when this is not a writer's hold;
    /// [`Lost`](LockError::Lost) when the lock is lost; [`Backend`](LockError::Backend) when the
    /// server could not be asked. In each case the lock is released.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock.
    pub async fn downgrade(self) -> Result<Self, LockError> {
        if self.hold.kind() != Kind::Write || self.joined.is_some() {
            let reason =
                "only the hold of a writer can be downgraded; acquire it by `write`".into();
            return Err(LockError::WrongHold { key: self.key().to_owned(), reason });
        }
        self.confirmed(Wants::Downgrade).await?;
        Ok(self)
    }

    /// Waits until the lock is lost, and returns the reason. It never resolves while the guard holds the lock,
    /// so put it into a `select!` beside the work.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # async fn work() -> u32 { 42 }
    /// let guard = locks.mutex("report").acquire().await?;
    /// tokio::select! {
    ///     done = work() => println!("done: {done}"),
    ///     reason = guard.lost() => println!("lost, {reason}: stop and clean up"),
    /// }
    /// # guard.release().await }
    /// ```
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn lost(&self) -> LossReason {
        match &self.joined {
            None => self.hold.lost().await,
            Some(joined) => {
                let around = joined.around(&self.hold);
                select_all(around.map(|hold| Box::pin(hold.ended()))).await.0
            }
        }
    }

    /// [`verify`](Self::verify) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// guard.blocking_verify()?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn blocking_verify(&self) -> Result<(), LockError> {
        block_on(self.verify())
    }

    /// [`extend`](Self::extend) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").blocking_acquire()?;
    /// guard.blocking_extend(std::time::Duration::from_secs(300))?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    pub fn blocking_extend(&self, ttl: Duration) -> Result<(), LockError> {
        block_on(self.extend(ttl))
    }

    /// [`downgrade`](Self::downgrade) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let reader = locks.write("catalog").blocking_acquire()?.blocking_downgrade()?;
    /// let _other = locks.read("catalog").blocking_acquire()?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`downgrade`](Self::downgrade).
    pub fn blocking_downgrade(self) -> Result<Self, LockError> {
        block_on(self.downgrade())
    }

    /// Sends a question about this hold and waits for its answer.
    async fn confirmed(&self, wants: Wants) -> Result<(), LockError> {
        self.joined_nothing_over()?;
        let (confirm, outcome) = oneshot::channel();
        self.locks.link().ask(&self.id, |machine, env| {
            machine.want(&self.hold, wants, confirm, env);
        });
        match outcome.await {
            Ok(Ok(())) => self.joined_nothing_over(),
            Ok(Err(error)) => Err(error.at(&self.locks.settings().server)),
            // The question was not sent: the hold has ended, or the engine has.
            Err(_) => Err(self.loss().unwrap_or(LockError::Shutdown)),
        }
    }

    /// For a guard that joined others, the outermost hold alone does not show whether it has the
    /// lock.
    fn joined_nothing_over(&self) -> Result<(), LockError> {
        match (&self.joined, self.loss()) {
            (Some(_), Some(error)) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Joined {
    /// The holds that this guard depends on.
    fn around<'a>(&'a self, hold: &'a Arc<Hold>) -> impl Iterator<Item = &'a Arc<Hold>> {
        std::iter::once(hold).chain(JoinedTurn::chain(self.turn.outer.as_deref()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.joined.is_some() || !self.hold.is_released() {
            let _ = self.give_back(&Finish::Release, || None);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key())
            .field("token", self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
