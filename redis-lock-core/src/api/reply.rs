//! Values that other calls get: `call`, and what it gives.

use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::acquire::{self, Got};
use crate::api::blocking::block_on;
use crate::api::fulfil::RunBody;
use crate::api::nesting::Caller;
use crate::api::scope;
use crate::domain::config_error::NOT_ONCE;
use crate::domain::value::{Finish, StoredValue};
use crate::{ConfigError, Guard, LockError, LockRequest, NoValue, observe};

/// Where a value comes from.
///
/// ```
/// # use redis_locks::Origin;
/// # let origin = Origin::Replayed;
/// if origin == Origin::Replayed {
///     println!("an earlier call has done it");
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// The body of this call returned it.
    Body,
    /// The body of another call returned it while this call waited.
    Shared,
    /// The body of an earlier call returned it, and it was stored.
    Replayed,
}

/// The value of a [`call`](LockRequest::call), and which body returned it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redis_locks::LockError> {
/// # use std::time::Duration;
/// use redis_locks::{LockError, Origin};
/// let locks = redis_locks::Locks::in_memory();
/// let pay = || locks.mutex("pay:42").once(Duration::from_secs(60)).replay();
/// let first = pay().call(async |_| Ok::<_, LockError>("receipt 1".to_owned())).await?;
/// let second = pay().call(async |_| Ok::<_, LockError>("receipt 2".to_owned())).await?;
/// assert_eq!((first.origin(), second.origin()), (Origin::Body, Origin::Replayed));
/// assert_eq!(second.into_value(), "receipt 1");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reply<T> {
    value: T,
    origin: Origin,
}

impl<T> Reply<T> {
    /// The value.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }
}

impl<T> Deref for Reply<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The value is not shown.
impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl LockRequest {
    /// With [`once`](Self::once): stores the value of the successful call. Later calls get that value instead of
    /// [`Done`](LockError::Done), until the period ends. Use [`call`](Self::call), or [`Guard::complete_with`].
    ///
    /// The value is stored as JSON, in one step with the mark of the success, and expires with it. It must not be
    /// larger than [`largest_value`](crate::LocksBuilder::largest_value). If a value can't be stored, its call still
    /// succeeds: a warning is logged, and later calls get `Done`, whose `no_value` says why. An error is never
    /// stored. Every client that can read the server can read the value.
    ///
    /// Needs the feature `serde`. Not on a quorum.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # use redis_locks::LockError;
    /// let pay = locks.mutex("pay:42").once(std::time::Duration::from_secs(60)).replay();
    /// let first = pay.clone().call(async |_| Ok::<_, LockError>(7)).await?;
    /// let second = pay.call(async |_| Ok::<_, LockError>(8)).await?;
    /// assert_eq!((*first, *second), (7, 7));
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub fn replay(mut self) -> Self {
        self.options.replay = true;
        self
    }

    /// Waiting calls with `share`, in every process, get the value of the running call, and their bodies don't run.
    /// Use [`call`](Self::call). If the running call fails, is cancelled or loses the lock, the next waiting call
    /// runs.
    ///
    /// A call never gets the value of a run that its process knew to be over when the call began: for older values
    /// use [`once`](Self::once) with [`replay`](Self::replay). A call that can't read the value as its type runs its
    /// own body. If a value can't be stored, the next call runs; see
    /// [`largest_value`](crate::LocksBuilder::largest_value). [`no_wait`](Self::no_wait) gets
    /// [`Busy`](LockError::Busy).
    ///
    /// A mutex of one key, with a ttl. Needs the feature `serde`. Not on a quorum.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # use redis_locks::LockError;
    /// let rate = locks.mutex("rate:EUR").share();
    /// let rate = rate.call(async |_| Ok::<_, LockError>(7)).await?;
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub fn share(mut self) -> Self {
        self.options.share = true;
        self
    }

    /// Runs `body` under the lock as [`try_run`](Self::try_run) does, unless another call has a value for this one.
    /// With [`replay`](Self::replay) that is the earlier successful call, and with [`share`](Self::share) the call
    /// that this one waited for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{error::Error, time::Duration};
    /// # let locks = redis_locks::Locks::in_memory();
    /// # async fn charge(cents: u32) -> Result<u64, Box<dyn Error>> { Ok(7) }
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let receipt = locks
    ///     .mutex("pay:42")
    ///     .once(day)
    ///     .replay()
    ///     .call(async |_| Ok::<u64, Box<dyn Error>>(charge(995).await?))
    ///     .await?;
    /// println!("{} from {:?}", receipt.value(), receipt.origin());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_run`](Self::try_run). [`Done`](LockError::Done) if an earlier call succeeded and its value is not
    /// available; [`InvalidConfig`](LockError::InvalidConfig) for a request that keeps no value.
    ///
    /// # Cancel safety
    /// As [`try_run`](Self::try_run).
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub async fn call<T, E, F>(mut self, body: F) -> Result<Reply<T>, E>
    where
        F: RunBody<Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<LockError>,
    {
        self.keeps_values()?;
        let mut begun = acquire::begin(&mut self, Caller::Task)?;
        drop(self);
        match begun.got().await? {
            Got::Guard(guard) => {
                let value = scope::call(guard, body, finish).await?;
                Ok(Reply { value, origin: Origin::Body })
            }
            Got::Done(value, done) => replayed(&value, done).map_err(E::from),
            Got::Shared(value, again) => {
                if let Ok(value) = read(&value) {
                    return Ok(Reply { value, origin: Origin::Shared });
                }
                let guard = Box::pin(again.acquire()).await?;
                let value = scope::call(guard, body, finish).await?;
                Ok(Reply { value, origin: Origin::Body })
            }
        }
    }

    /// [`call`](Self::call) for code without an async runtime. The body runs to its end. If the lock was
    /// lost by then, [`Lost`](LockError::Lost) replaces its success.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// # use redis_locks::LockError;
    /// let pay = locks.mutex("pay:42").once(std::time::Duration::from_secs(60)).replay();
    /// let receipt = pay.blocking_call(|_| Ok::<_, LockError>(7))?;
    /// assert_eq!(receipt.into_value(), 7);
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub fn blocking_call<T, E>(
        self,
        body: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Reply<T>, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<LockError>,
    {
        self.keeps_values()?;
        match acquire::blocking_got(self)? {
            Got::Guard(guard) => {
                let value = scope::blocking_call(guard, body, finish)?;
                Ok(Reply { value, origin: Origin::Body })
            }
            Got::Done(value, done) => replayed(&value, done).map_err(E::from),
            Got::Shared(value, again) => {
                if let Ok(value) = read(&value) {
                    return Ok(Reply { value, origin: Origin::Shared });
                }
                let value = scope::blocking_call(again.blocking_acquire()?, body, finish)?;
                Ok(Reply { value, origin: Origin::Body })
            }
        }
    }

    fn keeps_values(&self) -> Result<(), LockError> {
        let (needs, advice) =
            ("`share` or `replay`", "add `.share()` or `.once(…).replay()`, or use `try_run`");
        let refused = ConfigError::Requires { option: "call", needs, advice };
        if self.options.replay || self.options.share { Ok(()) } else { Err(refused.into()) }
    }
}

impl Guard {
    /// [`complete`](Self::complete) with a value for later calls, for a request with [`replay`](LockRequest::replay).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let pay = locks.mutex("pay:42").once(std::time::Duration::from_secs(60)).replay();
    /// pay.acquire().await?.complete_with(&7).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`complete`](Self::complete). A value that can't be stored is no error; see
    /// [`replay`](LockRequest::replay).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub async fn complete_with<T: Serialize + ?Sized>(self, value: &T) -> Result<(), LockError> {
        if !self.completes() {
            return Err(NOT_ONCE.into());
        }
        let finish = finish(&self, value);
        self.released(&finish).await
    }

    /// [`complete_with`](Self::complete_with) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let pay = locks.mutex("pay:42").once(std::time::Duration::from_secs(60)).replay();
    /// pay.blocking_acquire()?.blocking_complete_with(&7)?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`complete_with`](Self::complete_with).
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub fn blocking_complete_with<T: Serialize + ?Sized>(self, value: &T) -> Result<(), LockError> {
        block_on(self.complete_with(value))
    }
}

/// How a hold ends whose body has succeeded with this value.
pub(crate) fn finish<T: Serialize + ?Sized>(guard: &Guard, value: &T) -> Finish {
    let terms = &guard.hold().demand.terms;
    if terms.once.is_none() && !terms.share {
        return Finish::Release;
    }
    let most = guard.largest_value();
    let text = match guarded(|| serde_json::to_string(value)) {
        Some(json) if json.len() > most => Err(NoValue::TooLarge { bytes: json.len() }),
        Some(json) => Ok(StoredValue::new(json)),
        None => Err(NoValue::NotSerialized),
    };
    let shares = guard.hold().demand.terms.share;
    let text = text.inspect_err(|why| observe::not_stored(&guard.hold().demand, *why));
    match text {
        Ok(text) if shares => Finish::Share(text),
        Err(_) if shares => Finish::Release,
        Ok(text) => Finish::Complete(Some(text)),
        Err(why) => Finish::Complete(Some(StoredValue::without(&why))),
    }
}

/// Reads a value as the type that a call expects. What it does not accept is not told: the text of such an
/// error quotes the value.
pub(crate) fn read<T: DeserializeOwned>(value: &StoredValue) -> Result<T, NoValue> {
    guarded(|| serde_json::from_str(value.as_str())).ok_or(NoValue::OtherType)
}

/// What the user's code makes of a value. A panic there must not take the place of a body's success.
fn guarded<T>(convert: impl FnOnce() -> serde_json::Result<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(convert)).ok()?.ok()
}

fn replayed<T: DeserializeOwned>(
    value: &StoredValue,
    done: LockError,
) -> Result<Reply<T>, LockError> {
    match read(value) {
        Ok(value) => Ok(Reply { value, origin: Origin::Replayed }),
        Err(why) => Err(done.without_value(why)),
    }
}
