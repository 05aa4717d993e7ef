//! From a request to a guard.

use std::sync::Arc;

use crate::api::blocking::{block_on_or, may_stall_runtime};
use crate::api::nesting::{self, Caller, Outer};
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::lease::last_fence;
use crate::domain::status::Scripting;
use crate::domain::value::StoredValue;
use crate::engine::{Asking, BlockingCall, NotGranted};
use crate::observe::{Acquiring, log};
use crate::{Guard, Holder, LockError, LockRequest, Locks, LossReason, Token};

/// An acquisition that was checked and has joined the waiters. It is small, because it is part of
/// every caller's future; the request itself was dropped before.
pub(crate) struct Begun {
    asking: Asking<Locks>,
    /// The outer hold that it joins, when it is a nested call that waits for its turn there.
    joins: Option<Box<Outer>>,
    observed: Option<Box<Acquiring>>,
    /// Whether the value of the call that did it is wanted.
    replays: bool,
    /// The request of a call that gets a value which it can't read, where it may get one.
    again: Option<Box<LockRequest>>,
}

/// Checks the request and joins the queue. It takes the keys out of the request, and copies of it
/// nothing but what it needs: a request is large, and callers make one for every lock.
pub(crate) fn begin(request: &mut LockRequest, caller: Caller) -> Result<Begun, LockError> {
    if request.options.once.is_some() || request.options.share {
        // A call that joins another is not checked, and would forget it.
        request.options.check(request.kind)?;
    }
    match nesting::outer(request, caller)? {
        Some(outer) => {
            let mut turn = outer.turn(request)?;
            let begun = anew(&mut turn, caller)?;
            Ok(Begun { joins: Some(Box::new(outer)), ..begun })
        }
        None => anew(request, caller),
    }
}

/// Takes over the hold of a token. An adoption never waits, so the checks for nested calls are
/// not needed.
pub(crate) fn adopt(mut request: LockRequest) -> Result<Begun, LockError> {
    anew(&mut request, Caller::Task)
}

/// The fencing number for an adopter of the token, if the server still knows it.
///
/// # Errors
/// `Lost` when the lock is held as another kind than the request names. A renewal would not tell,
/// since a writer that became a reader is still renewed as a writer.
pub(crate) async fn fence_of(
    request: &LockRequest,
    token: &Token,
) -> Result<Option<u64>, LockError> {
    let Some(key) = request.keys.as_slice().first() else { return Ok(None) };
    let seen = request.locks.server_view_of(key).await?;
    if !request.kind.may_be(seen.kind) {
        let reason = LossReason::Removed { because: None };
        return Err(LockError::Lost { key: key.to_string(), reason });
    }
    let is_it = |holder: &&Holder| holder.token.wire() == token.wire();
    let first = seen.holders.iter().find(is_it).and_then(|holder| holder.fence);
    // The process that gave the token away may have used all reserved numbers for its own
    // hand-overs.
    let last = first.map(last_fence);
    if let Some(last) = last {
        request.locks.spread_fence(request.keys.as_slice(), token, last).await?;
    }
    Ok(last)
}

/// Acquires the lock and blocks the thread until then.
pub(crate) fn blocking(request: LockRequest) -> Result<Guard, LockError> {
    request.needs_guard()?;
    blocking_on(request, async |begun| begun.granted().await)
}

/// The same where another call may have done it, whose value is wanted.
pub(crate) fn blocking_got(request: LockRequest) -> Result<Got, LockError> {
    blocking_on(request, async |begun| begun.got().await)
}

fn blocking_on<T>(
    mut request: LockRequest,
    end: impl AsyncFnOnce(&mut Begun) -> Result<T, LockError>,
) -> Result<T, LockError> {
    let _call = BlockingCall::begin();
    let mut begun = begin(&mut request, Caller::Thread)?;
    drop(request);
    let waits = begun.asking.place().filter(|_| begun.joins.is_none());
    block_on_or(end(&mut begun), || {
        let Some((locks, id, number)) = waits else { return };
        let Some(demand) = locks.link().waiting(&id, number) else { return };
        let own = nesting::taken_by_own_thread(&locks, &demand);
        if own.is_some() || may_stall_runtime() {
            log::stalled(&demand, own.as_deref());
        }
    })
}

fn anew(request: &mut LockRequest, caller: Caller) -> Result<Begun, LockError> {
    let again = request.options.share.then(|| Box::new(request.alone()));
    let LockRequest { locks, kind, keys, options } = request;
    let (settings, kind, keys) = (locks.settings(), *kind, keys.take());
    if options.margin.is_none() && options.ttl.is_some() {
        options.margin = settings.margin;
    }
    // The default concerns those locks that can linger.
    let may_linger = options.ttl.is_some()
        && options.once.is_none()
        && options.queue.is_none()
        && !options.newest
        && !options.share
        && kind.is_pooled();
    if options.linger.is_none() && may_linger {
        options.linger = settings.linger;
    }
    if settings.scripting == Scripting::Never && kind != Kind::Mutex {
        let fault = Fault::needs_scripts(kind.description());
        return Err(LockError::backend(None, &fault));
    }
    let demand = options.demand(keys, kind, &settings.in_common())?;
    let runtime = nesting::current_thread_runtime();
    let demand = Arc::new(Demand { runtime, holding: nesting::held(), ..demand });
    let observed = Acquiring::begin(&demand, locks.recording());
    if let Err(error) = admit(locks, &demand, caller) {
        if let Some(observed) = observed {
            observed.ended(Err(&error));
        }
        return Err(error);
    }
    let asking = Asking::begin(locks.clone(), demand);
    if let (Some(observed), Some(holder)) = (&observed, &asking.behind) {
        let label = holder.as_ref().and_then(|holder| holder.token.label());
        observed.contended(label.as_deref());
    }
    Ok(Begun { asking, joins: None, observed, replays: options.replay, again })
}

fn admit(locks: &Locks, demand: &Demand, caller: Caller) -> Result<(), LockError> {
    if locks.link().is_closed() || locks.link().core().is_draining() {
        return Err(LockError::Shutdown);
    }
    if caller == Caller::Thread
        && let Some(key) = nesting::blocked_for_ever(locks, demand)
    {
        return Err(LockError::Reentrant { key, other_task: true });
    }
    Ok(())
}

/// What an acquisition comes to where another call may have the value that is wanted.
pub(crate) enum Got {
    Guard(Guard),
    /// Another call has done it: its value, and the error of a call that can't read that.
    Done(StoredValue, LockError),
    /// The value of the call that this one has waited for, and the request of a call that can't read that.
    Shared(StoredValue, Box<LockRequest>),
}

impl Begun {
    /// Waits for the lock, or for the value of another call.
    pub(crate) async fn got(&mut self) -> Result<Got, LockError> {
        let locks = self.asking.manager().cloned();
        let done = match (self.taken().await, &mut self.again) {
            (Ok(guard), _) => return Ok(Got::Guard(guard)),
            (Err(NotGranted::Value(value)), Some(again)) => {
                return Ok(Got::Shared(value, again.clone()));
            }
            (Err(NotGranted::Value(_)), None) => return Err(LockError::Shutdown),
            (Err(NotGranted::Error(done @ LockError::Done { .. })), _) if self.replays => done,
            (Err(NotGranted::Error(error)), _) => return Err(error),
        };
        let (Some(locks), LockError::Done { key, token, .. }) = (locks, &done) else {
            return Err(done);
        };
        match locks.stored_value(key, token).await? {
            Ok(value) => Ok(Got::Done(value, done)),
            Err(why) => Err(done.without_value(why)),
        }
    }

    /// Waits for the lock, and reports the outcome to subscribers and recorders.
    pub(crate) async fn granted(&mut self) -> Result<Guard, LockError> {
        self.taken().await.map_err(|not| match not {
            NotGranted::Error(error) => error,
            // Only `got` is asked by calls that share.
            NotGranted::Value(_) => LockError::Shutdown,
        })
    }

    async fn taken(&mut self) -> Result<Guard, NotGranted> {
        let granted = self.asking.granted().await;
        let taken = match (self.asking.asked(), granted) {
            (Some((locks, id)), Ok(hold)) => Ok(Guard::new(locks, id, hold)),
            (Some((locks, _)), Err(not)) => Err(match *not {
                NotGranted::Error(error) => NotGranted::Error(error.at(&locks.settings().server)),
                value @ NotGranted::Value(_) => value,
            }),
            (None, _) => Err(NotGranted::Error(LockError::Shutdown)),
        };
        if let Some(observed) = self.observed.take() {
            match &taken {
                Ok(guard) => observed.ended(Ok(guard.hold().described())),
                Err(NotGranted::Error(error)) => observed.ended(Err(error)),
                Err(NotGranted::Value(_)) => observed.shared(),
            }
        }
        match (self.joins.take(), taken) {
            (Some(outer), Ok(guard)) => outer.joined(Ok(guard)).map_err(NotGranted::Error),
            (Some(outer), Err(NotGranted::Error(error))) => {
                outer.joined(Err(error)).map_err(NotGranted::Error)
            }
            (_, taken) => taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testbed::eventually;

    use super::*;

    #[test]
    fn an_idle_lease_that_was_taken_and_never_asked_for_is_given_back() {
        let locks = Locks::in_memory();
        let request = || locks.mutex("k").linger(Duration::from_secs(20)).no_wait();
        eventually(Duration::from_secs(10), "its lease stays", || {
            request().blocking_acquire().unwrap().blocking_release().unwrap();
            !locks.link().core().is_at_rest()
        });
        let begun = begin(&mut request(), Caller::Task).unwrap();
        let busy = request().blocking_acquire();
        assert!(matches!(busy, Err(LockError::Busy { .. })), "it was taken at once: {busy:?}");
        // As the future of a call that is dropped before it is polled.
        drop(begun);
        let next = request().blocking_acquire();
        assert!(next.is_ok(), "{next:?}");
    }
}
