//! Runs a body under a guard: the body is not polled after the lock is lost.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::Poll;

use tokio::task;

use crate::api::nesting;
use crate::domain::value::Finish;
use crate::observe;
use crate::sync::NonPoisonMutex;
use crate::{Guard, LockError, LossReason};

/// The lock of one body: empty until it is acquired, then held until it is released.
#[derive(Debug, Default)]
pub(crate) struct BodyLock {
    /// While a body that has not ended is dropped. Before the guard, which is dropped after it.
    leaving: NonPoisonMutex<Option<nesting::Frame>>,
    guard: OnceLock<Guard>,
    /// Whether the body runs to its end although the lock is lost.
    pub(crate) finishes: bool,
    /// Whether the release is not waited for.
    pub(crate) in_background: bool,
}

impl BodyLock {
    /// The guard, once there is one.
    pub(crate) fn guard(&self) -> Option<&Guard> {
        self.guard.get()
    }

    /// Keeps the guard until the release.
    ///
    /// # Errors
    /// `Lost` when the lock was lost before the body could begin: between the grant and the next poll of the
    /// call its runtime may stand still.
    pub(crate) fn put(&self, guard: Guard) -> Result<&Guard, LockError> {
        let guard = self.guard.get_or_init(|| guard);
        guard.hold().runs_in(task::try_id());
        guard.loss().map_or(Ok(guard), Err)
    }

    /// Why the lock is lost, if it is and the body has to stop then.
    pub(crate) fn loss(&self) -> Option<LockError> {
        self.guard.get().filter(|_| !self.finishes)?.loss()
    }

    /// Why the body has to stop now: the lock is lost, or a newer call waits for it. A guard that joined an outer
    /// hold stops with the outer body.
    pub(crate) fn interruption(&self) -> Option<LockError> {
        self.loss().or_else(|| {
            let guard =
                self.guard.get().filter(|guard| guard.is_superseded() && !guard.is_joined())?;
            Some(LockError::Superseded { key: guard.key().into() })
        })
    }

    /// Runs a body that blocks.
    pub(crate) fn within<R>(&self, body: impl FnOnce() -> R) -> R {
        let _frame = nesting::enter(self.guard.get());
        body()
    }

    /// The body is about to be dropped although it has not ended. What it drops runs under the lock, like
    /// the body, until [`left`](Self::left) is called or the lock is dropped.
    pub(crate) fn leave(&self) {
        self.leaving.lock().get_or_insert_with(|| nesting::enter(self.guard.get()));
    }

    /// The body has been dropped.
    pub(crate) fn left(&self) {
        let frame = self.leaving.lock().take();
        drop(frame);
    }

    /// Polls the body until it ends or the lock is lost.
    async fn watch<F: Future>(&self, body: &mut Pin<Box<F>>) -> Result<F::Output, LockError> {
        let mut interrupted = pin!(self.interrupted());
        poll_fn(|context| {
            if let Some(error) = self.interruption() {
                return Poll::Ready(Err(error));
            }
            match self.within(|| body.as_mut().poll(context)) {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending => interrupted.as_mut().poll(context).map(Err),
            }
        })
        .await
    }

    /// Completes when the body has to stop.
    pub(crate) async fn interrupted(&self) -> LockError {
        match self.guard.get() {
            Some(guard) if !guard.is_joined() => guard.hold().until(|| self.interruption()).await,
            // It ends with any of those that it joined.
            Some(guard) if !self.finishes => {
                let reason = guard.lost().await;
                guard.hold().lost_error(reason)
            }
            _ => std::future::pending().await,
        }
    }

    /// Releases the lock, or completes it when its body has succeeded. `lost` is what was known when the
    /// body ended; the answer adds what the server knew.
    pub(crate) async fn released(
        &self,
        lost: Option<LockError>,
        finish: Finish,
    ) -> Option<LockError> {
        let guard = self.guard.get()?;
        let counts = lost.is_none() && guard.can(&finish);
        let finish = if counts { finish } else { Finish::Release };
        if self.in_background && !counts {
            let _ = guard.give_back(&Finish::Release, || None);
            return lost;
        }
        let outcome = guard.released(&finish).await;
        if let (Finish::Complete(_), Err(error)) = (&finish, &outcome) {
            observe::not_completed(&guard.hold().demand, error);
        }
        match outcome {
            // A lease that ran out only now was good until the body's end. A key that is gone or
            // taken was so before.
            Err(LockError::Lost {
                reason: LossReason::Expired | LossReason::HoldLimit, ..
            }) => lost,
            Err(error @ LockError::Lost { .. }) if !self.finishes => lost.or(Some(error)),
            _ => lost,
        }
    }
}

/// Runs an async body under `guard` and releases it.
pub(crate) async fn run<T, F>(guard: Guard, body: F) -> Result<T, LockError>
where
    F: AsyncFnOnce(&Guard) -> T,
{
    let held = BodyLock::default();
    let body = Box::pin(body(held.put(guard)?));
    let (value, lost) = watched(&held, body, |_| Finish::Release).await?;
    lost.map_or(Ok(value), Err)
}

/// The same for a body that may fail.
pub(crate) async fn try_run<T, E, F>(guard: Guard, body: F) -> Result<T, E>
where
    F: AsyncFnOnce(&Guard) -> Result<T, E>,
    E: From<LockError>,
{
    let held = BodyLock::default();
    let body = Box::pin(body(held.put(guard)?));
    let (value, lost) = watched(&held, body, Finish::of).await?;
    held_to_end(value, lost)
}

/// The same where other calls may get its value.
#[cfg(feature = "serde")]
pub(crate) async fn call<T, E, F>(
    guard: Guard,
    body: F,
    finish: fn(&Guard, &T) -> Finish,
) -> Result<T, E>
where
    F: AsyncFnOnce(&Guard) -> Result<T, E>,
    E: From<LockError>,
{
    let held = BodyLock::default();
    let guard = held.put(guard)?;
    let finish =
        |value: &Result<T, E>| value.as_ref().map_or(Finish::Release, |value| finish(guard, value));
    let (value, lost) = watched(&held, Box::pin(body(guard)), finish).await?;
    held_to_end(value, lost)
}

/// What a body that may fail has returned: its success counts only if the lock was held until then.
fn held_to_end<T, E: From<LockError>>(
    value: Result<T, E>,
    lost: Option<LockError>,
) -> Result<T, E> {
    value.and_then(|value| lost.map_or(Ok(value), |lost| Err(lost.into())))
}

/// Runs a leader's body under `guard` and releases it. `None` where the body was dropped, because the lock was lost.
pub(crate) async fn lead<T, F>(guard: Guard, body: &mut F) -> Option<Result<T, LockError>>
where
    F: AsyncFnMut(&Guard) -> T,
{
    let held = BodyLock::default();
    let body = Box::pin(body(held.put(guard).ok()?));
    let (value, lost) = watched(&held, body, |_| Finish::Release).await.ok()?;
    Some(lost.map_or(Ok(value), Err))
}

/// The body's value, and how the lock was lost if it was lost by then. Fails when the body was dropped
/// because of that.
///
/// The body is in a box: it is moved through several futures, each of which has room for it, and calls
/// may be nested.
async fn watched<F: Future>(
    held: &BodyLock,
    mut body: Pin<Box<F>>,
    finish: impl FnOnce(&F::Output) -> Finish,
) -> Result<(F::Output, Option<LockError>), LockError> {
    // Dropped before the body, when the call is cancelled.
    let mut leaving = LeavingBody(Some(held));
    let ended = held.watch(&mut body).await;
    let lost = held.loss();
    held.within(|| drop(body));
    leaving.0 = None;
    let finish = match &ended {
        Ok(value) if lost.is_none() => finish(value),
        _ => Finish::Release,
    };
    let lost = held.released(lost, finish).await;
    match (ended, lost) {
        (Ok(value), lost) => Ok((value, lost)),
        // A newer call has come, and the lock was lost besides.
        (Err(_), Some(lost)) => Err(lost),
        (Err(error), None) => Err(error),
    }
}

/// Has a body that has not ended dropped under its lock.
struct LeavingBody<'a>(Option<&'a BodyLock>);

impl Drop for LeavingBody<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.0 {
            held.leave();
        }
    }
}

/// Runs a blocking body under `guard` and releases it.
pub(crate) fn blocking_run<T>(
    guard: Guard,
    body: impl FnOnce(&Guard) -> T,
) -> Result<T, LockError> {
    let (value, lost) = blocking_watched(guard, body, |_, _| Finish::Release)?;
    lost.map_or(Ok(value), Err)
}

/// The same for a body that may fail.
pub(crate) fn blocking_try_run<T, E: From<LockError>>(
    guard: Guard,
    body: impl FnOnce(&Guard) -> Result<T, E>,
) -> Result<T, E> {
    let (value, lost) = blocking_watched(guard, body, |_, value| Finish::of(value))?;
    held_to_end(value, lost)
}

/// The same where other calls may get its value.
#[cfg(feature = "serde")]
pub(crate) fn blocking_call<T, E: From<LockError>>(
    guard: Guard,
    body: impl FnOnce(&Guard) -> Result<T, E>,
    finish: fn(&Guard, &T) -> Finish,
) -> Result<T, E> {
    let finish = |guard: &Guard, value: &Result<T, E>| {
        value.as_ref().map_or(Finish::Release, |value| finish(guard, value))
    };
    let (value, lost) = blocking_watched(guard, body, finish)?;
    held_to_end(value, lost)
}

fn blocking_watched<T>(
    guard: Guard,
    body: impl FnOnce(&Guard) -> T,
    finish: impl FnOnce(&Guard, &T) -> Finish,
) -> Result<(T, Option<LockError>), LockError> {
    let held = BodyLock::default();
    let guard = held.put(guard)?;
    let value = held.within(|| body(guard));
    let lost = held.loss();
    let finish = if lost.is_none() { finish(guard, &value) } else { Finish::Release };
    let released = held.released(lost, finish);
    Ok((value, crate::api::blocking::block_on(released)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Guard, LockError, Locks};

    /// A guard that was lost before its caller could go on, and the guard of the next holder.
    fn lost_and_next(locks: &Locks) -> (Guard, Guard) {
        let short = locks.mutex("k").ttl(Duration::from_millis(100)).renew(false);
        let lost = short.blocking_acquire().unwrap();
        (lost, locks.mutex("k").blocking_acquire().unwrap())
    }

    /// The size of the future of a call whose body has this many bytes, and the size of the same call nested
    /// in six others.
    fn sizes<const BYTES: usize>() -> (usize, usize) {
        macro_rules! run {
            ($locks:ident, $body:expr) => {
                $locks.mutex("k").run(async |_| $body)
            };
        }
        let locks = Locks::in_memory();
        let own = async || {
            let bytes = [0_u8; BYTES];
            std::future::ready(()).await;
            std::hint::black_box(bytes);
        };
        let one = run!(locks, own().await);
        let six = run!(locks, {
            let _ = run!(locks, {
                let _ = run!(locks, {
                    let _ = run!(locks, {
                        let _ = run!(locks, {
                            let _ = run!(locks, own().await).await;
                        })
                        .await;
                    })
                    .await;
                })
                .await;
            })
            .await;
        });
        (size_of_val(&one), size_of_val(&six))
    }

    #[test]
    fn the_future_of_a_call_has_one_size_whatever_its_body_is() {
        let (small, nested) = sizes::<1>();
        assert_eq!(sizes::<16_384>(), (small, nested));
        assert!(small <= 2_048 && nested <= small + 64, "{small}, {nested}");
    }

    #[test]
    fn what_a_body_captures_has_room_in_the_future_of_a_call_once() {
        let (locks, bytes) = (Locks::in_memory(), [0_u8; 16_384]);
        let runs = locks.mutex("k").run(async move |_| {
            std::hint::black_box(bytes);
        });
        let tried = locks.mutex("k").try_run(async move |_| {
            std::hint::black_box(bytes);
            Ok::<_, LockError>(())
        });
        let sizes = [size_of_val(&runs), size_of_val(&tried)];
        assert!(sizes.iter().all(|size| *size <= 16_384 + 2_048), "{sizes:?}");
    }

    #[test]
    fn the_futures_of_try_run_and_lead_have_no_room_for_the_body() {
        let locks = Locks::in_memory();
        let large = async || {
            let bytes = [0_u8; 16_384];
            std::future::ready(()).await;
            std::hint::black_box(bytes);
        };
        let tried = locks.mutex("k").try_run(async |_| {
            large().await;
            Ok::<_, LockError>(())
        });
        let leads = locks.mutex("k").lead(async |_| large().await);
        let sizes = [size_of_val(&tried), size_of_val(&leads)];
        assert!(sizes.iter().all(|size| *size <= 2_048), "{sizes:?}");
    }

    #[test]
    fn n3_a_blocking_body_does_not_begin_after_its_lock_was_lost() {
        let locks = Locks::in_memory();
        let (lost, _next) = lost_and_next(&locks);
        let ended = super::blocking_run(lost, |_| panic!("another holder has the lock"));
        assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    }

    #[test]
    fn n3_a_closure_that_makes_its_future_is_not_called_after_the_loss() {
        let locks = Locks::in_memory();
        let (lost, _next) = lost_and_next(&locks);
        let body = |_: &Guard| -> std::future::Ready<()> { panic!("another holder has the lock") };
        let ended = crate::api::blocking::block_on(super::run(lost, body));
        assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    }
}
