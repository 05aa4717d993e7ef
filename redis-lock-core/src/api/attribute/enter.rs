//! One call of an annotated function: its scope, and the steps between the call and its body.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::plan::Plan;
use crate::api::acquire::{self, Begun, begin};
use crate::api::caller::Caller;
use crate::api::nesting;
use crate::api::scope::BodyLock;
use crate::domain::kind::Kind;
use crate::domain::together::Keys;
use crate::{Guard, LockError, LockKey, Locks, Request};

/// The surroundings of one call: what is known of the function, and the lock once it is acquired.
///
/// The body runs inside and asks for the lock itself, so that keys and arguments live where they
/// are dropped before the release. Everything else is done here, once for all functions: the body
/// only leaves its request and is polled again when the lock is there.
pub struct Scope {
    plan: &'static Plan,
    held: BodyLock,
    state: Mutex<CallState>,
}

/// The life of a lock, see [`Scope::lead`]. It ends with what the call fails with.
pub(super) type Life<'a> = Pin<Box<dyn Future<Output = Option<LockError>> + Send + 'a>>;

/// ```text
/// Starting --the body asks--> Acquiring --granted--> Running --the body ends, or the lock is lost--> Ended
///     |                           |--busy, and the body wants to know--> Refused --> Ended
///     |                           `--failed--> Ended
///     `--the body ends without asking--> Ended
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallStage {
    Starting,
    Acquiring,
    Refused,
    Running,
    Ended,
}

struct CallState {
    stage: CallStage,
    /// What the body asked for, until the acquisition picks it up.
    asked: Option<Result<Begun, Box<LockError>>>,
    /// Whether the body has a value of its own for a busy lock.
    answers_busy: bool,
    /// Why the lock was lost before the body ended.
    lost: Option<Box<LockError>>,
}

impl Scope {
    /// The scope of a call of the function that `plan` describes.
    #[must_use]
    pub fn new(plan: &'static Plan) -> Self {
        let mut held = BodyLock::default();
        held.finishes = plan.finishes;
        held.in_background = plan.in_background;
        let state =
            CallState { stage: CallStage::Starting, asked: None, answers_busy: false, lost: None };
        Self { plan, held, state: Mutex::new(state) }
    }

    /// The request for one key, from the given manager or the process-wide one.
    ///
    /// # Errors
    /// That of the key, or `NotConfigured`.
    pub fn request(
        &self,
        locks: Option<&Locks>,
        key: Result<LockKey, LockError>,
    ) -> Result<Request, LockError> {
        let key = key?;
        let locks = manager(locks)?;
        let request = Request::new(locks.into_owned(), self.plan.kind, Keys::One(key));
        Ok(self.plan.apply(request))
    }

    /// The request for several keys.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_all(
        &self,
        locks: Option<&Locks>,
        keys: Result<Vec<LockKey>, LockError>,
    ) -> Result<Request, LockError> {
        let keys = keys?;
        Ok(self.plan.apply(manager(locks)?.all(keys)))
    }

    /// Asks for the lock. When the future resolves, the lock is held; when it cannot be, the
    /// future never resolves, and the body is dropped.
    pub fn acquire(&self, request: Result<Request, LockError>) -> BodyAcquire<'_> {
        self.ask(request, false);
        BodyAcquire(self)
    }

    /// [`acquire`](Self::acquire) for a body that has a value of its own for a busy lock: `None`
    /// when it is busy.
    pub fn acquire_unless_busy(
        &self,
        request: Result<Request, LockError>,
    ) -> AcquireUnlessBusy<'_> {
        self.ask(request, true);
        AcquireUnlessBusy(self)
    }

    /// [`acquire`](Self::acquire) for a body that blocks.
    ///
    /// # Errors
    /// Those of the request, and of its making.
    pub fn blocking_acquire(
        &self,
        request: Result<Request, LockError>,
    ) -> Result<&Guard, LockError> {
        let guard = acquire::blocking(request?)?;
        let guard = self.held.put(guard);
        nesting::note(guard);
        Ok(guard)
    }

    fn ask(&self, request: Result<Request, LockError>, answers_busy: bool) {
        // At once, and not when polled: the request would have to live in the future until then.
        let begun = request.and_then(|request| begin(request, Caller::Task)).map_err(Box::new);
        let mut state = self.state();
        state.stage = CallStage::Acquiring;
        state.asked = Some(begun);
        state.answers_busy = answers_busy;
    }

    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage(&self) -> CallStage {
        self.state().stage
    }

    fn enter(&self, stage: CallStage) {
        self.state().stage = stage;
    }

    /// The life of the lock: acquires it when the body asks, watches it while the body runs, and
    /// releases it when the body has ended. Returns what the call fails with, if it fails.
    ///
    /// One state machine for all functions. In a box: it is larger than all else that an annotated
    /// function adds to its future.
    pub(super) fn lead(&self) -> Life<'_> {
        Box::pin(self.led())
    }

    async fn led(&self) -> Option<LockError> {
        let asked = poll_fn(|_| {
            let mut state = self.state();
            match (state.asked.take(), state.stage) {
                (Some(asked), _) => Poll::Ready(Some(asked)),
                (None, CallStage::Ended) => Poll::Ready(None),
                _ => Poll::Pending,
            }
        });
        match acquired(asked.await?).await {
            Ok(guard) => {
                self.held.put(guard);
                self.enter(CallStage::Running);
            }
            Err(error) if error.is_busy() && self.state().answers_busy => {
                self.enter(CallStage::Refused);
                self.ended().await;
                return None;
            }
            Err(error) => {
                self.enter(CallStage::Ended);
                return Some(error);
            }
        }
        self.watch().await;
        let lost = self.state().lost.take().map(|lost| *lost);
        self.held.released(lost).await
    }

    /// Ends when the body has ended; a lock that is lost ends it.
    async fn watch(&self) {
        let mut lost = pin!(self.held.lost());
        // The body is polled first: most need no more than that.
        let mut is_first = true;
        poll_fn(|context| {
            if self.stage() == CallStage::Ended {
                return Poll::Ready(());
            }
            if !std::mem::take(&mut is_first)
                && let Poll::Ready(error) = lost.as_mut().poll(context)
            {
                // The body has to go before the lock does, so this step is not the last one.
                self.end(Some(error));
            }
            Poll::Pending
        })
        .await;
    }

    async fn ended(&self) {
        poll_fn(|_| if self.stage() == CallStage::Ended { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    fn end(&self, lost: Option<LockError>) {
        let mut state = self.state();
        state.stage = CallStage::Ended;
        state.lost = lost.map(Box::new);
    }

    /// One poll of the call. `body` polls the body, given a context, and drops it, given none; it
    /// tells whether the body has ended by itself.
    ///
    /// The body is never polled once the lock is lost, and has been dropped when the release begins.
    pub(super) fn step(
        &self,
        life: &mut Life<'_>,
        body: &mut dyn FnMut(Option<&mut Context<'_>>) -> bool,
        context: &mut Context<'_>,
    ) -> Poll<Option<LockError>> {
        loop {
            if matches!(self.stage(), CallStage::Starting | CallStage::Refused | CallStage::Running)
            {
                self.poll_body(body, context);
            }
            let stage = self.stage();
            if stage == CallStage::Ended {
                body(None);
            }
            let failed = life.as_mut().poll(context);
            if failed.is_ready() {
                body(None);
                return failed;
            }
            if self.stage() == stage {
                return Poll::Pending;
            }
        }
    }

    fn poll_body(
        &self,
        body: &mut dyn FnMut(Option<&mut Context<'_>>) -> bool,
        context: &mut Context<'_>,
    ) {
        if let Some(lost) = self.held.loss() {
            return self.end(Some(lost));
        }
        let ended = self.held.within(|| body(Some(context)));
        if ended {
            let lost = self.held.loss();
            self.end(lost);
        }
    }

    /// Runs a body that blocks, and releases what it acquired.
    pub(super) fn within<T>(&self, body: impl FnOnce() -> T) -> (T, Option<LockError>) {
        let value = self.held.within(body);
        (value, self.leave())
    }

    fn leave(&self) -> Option<LockError> {
        let lost = self.held.loss();
        crate::api::blocking::block_on(self.held.released(lost))
    }
}

async fn acquired(asked: Result<Begun, Box<LockError>>) -> Result<Guard, LockError> {
    match asked {
        Ok(begun) => begun.granted().await,
        Err(error) => Err(*error),
    }
}

fn manager(given: Option<&Locks>) -> Result<Cow<'_, Locks>, LockError> {
    match given {
        Some(locks) => Ok(Cow::Borrowed(locks)),
        None => Locks::global().map(Cow::Owned),
    }
}

/// Resolves when the lock is held. See [`Scope::acquire`].
#[derive(Debug)]
pub struct BodyAcquire<'a>(&'a Scope);

impl<'a> Future for BodyAcquire<'a> {
    type Output = &'a Guard;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        // Whoever polls the call polls the body again when the stage changes.
        self.0.held.guard().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Resolves when the lock is held, or busy. See [`Scope::acquire_unless_busy`].
#[derive(Debug)]
pub struct AcquireUnlessBusy<'a>(&'a Scope);

impl<'a> Future for AcquireUnlessBusy<'a> {
    type Output = Option<&'a Guard>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.held.guard() {
            None if self.0.stage() == CallStage::Refused => Poll::Ready(None),
            None => Poll::Pending,
            guard => Poll::Ready(guard),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("held", &self.held).finish_non_exhaustive()
    }
}

/// The request for one of a number of permits that is only known at run time.
pub fn with_permits(mut request: Request, limit: u32) -> Request {
    request.kind = Kind::Permit { limit };
    request
}
