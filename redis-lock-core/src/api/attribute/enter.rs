//! One call of an annotated function: its scope, and the steps between the call and its body.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::{Fixed, Plan};
use crate::api::acquire::{self, Begun, Got, begin};
use crate::api::nesting;
use crate::api::nesting::Caller;
use crate::api::scope::BodyLock;
use crate::domain::key::Keys;
use crate::domain::kind::Kind;
use crate::domain::value::{Finish, StoredValue};
use crate::observe::log;
use crate::sync::{NonPoisonGuard, NonPoisonMutex};
use crate::{Guard, LockError, LockKey, LockRequest, Locks, Wait};

/// The state of one call: what is known of the function, and the lock once it is acquired.
///
/// If the key is only a template of arguments, the lock is acquired before the body begins. A body
/// whose key needs more, such as an `.await`, acquires it itself. Everything else is done here, once
/// for all functions: the body is polled when the lock is held.
///
/// The content is hidden behind a trait object: an annotated function holds its scope while it
/// waits, and rustc would prove for each function anew that every field is `Send`. That took a
/// fifth of the time to check a function.
pub struct Scope(Box<dyn Closed>);

trait Closed: Send + Sync {
    fn open(&self) -> &Content;
}

impl Closed for Content {
    fn open(&self) -> &Content {
        self
    }
}

struct Content {
    plan: Plan,
    held: BodyLock,
    state: NonPoisonMutex<CallState>,
}

/// The life of a lock, see [`Scope::lead`]. It resolves to the error of the call, if the call
/// fails.
///
/// A named type, so that the code that drops it is compiled once.
pub(super) struct Life<'a>(Pin<Box<dyn Future<Output = Option<LockError>> + Send + 'a>>);

/// ```text
/// Starting --somebody asks--> Acquiring --granted--> Running --the body ends--> Ended
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
    /// The request, until the acquisition takes it.
    asked: Option<Result<Begun, Box<LockError>>>,
    /// Why the lock was lost when the body ended.
    lost: Option<Box<LockError>>,
    /// How the hold ends, once the body has.
    finish: Finish,
    /// Whether another call had done it.
    is_done: bool,
    /// The value of the call that had done it.
    value: Option<StoredValue>,
    /// Whether a value can be read as what the function returns.
    reads: Option<fn(&StoredValue) -> bool>,
}

impl Scope {
    /// The scope of a call of a function whose body asks for the lock. The function's holders are
    /// called `label`, and the locks `lock`.
    #[must_use]
    pub fn new(label: &'static str, lock: &'static str, known: &'static [Fixed]) -> Self {
        let plan = Plan::new(label, lock, known);
        let mut held = BodyLock::default();
        held.finishes = plan.finishes();
        held.in_background = plan.in_background();
        let state = CallState {
            stage: CallStage::Starting,
            asked: None,
            lost: None,
            finish: Finish::Release,
            is_done: false,
            value: None,
            reads: None,
        };
        Self(Box::new(Content { plan, held, state: NonPoisonMutex::new(state) }))
    }

    /// The request for one key, from the given manager or the process-wide one.
    ///
    /// # Errors
    /// That of the key, or `NotConfigured`.
    pub fn request(
        &self,
        locks: Option<&Locks>,
        key: Result<LockKey, LockError>,
    ) -> Result<LockRequest, LockError> {
        let key = key?;
        let locks = manager(locks)?;
        let request = LockRequest::new(locks.into_owned(), self.open().plan.kind(), Keys::One(key));
        Ok(self.open().plan.apply(request))
    }

    /// The request for several keys.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_all(
        &self,
        locks: Option<&Locks>,
        keys: Result<Vec<LockKey>, LockError>,
    ) -> Result<LockRequest, LockError> {
        let keys = keys?;
        Ok(self.open().plan.apply(manager(locks)?.all(keys)))
    }

    /// A scope that asks for the lock of one key, with the request that [`request`](Self::request)
    /// makes.
    #[must_use]
    pub fn asking(
        label: &'static str,
        lock: &'static str,
        known: &'static [Fixed],
        locks: Option<&Locks>,
        key: Result<LockKey, LockError>,
    ) -> Self {
        let scope = Self::new(label, lock, known);
        scope.ask(scope.request(locks, key));
        scope
    }

    /// A scope that asks for the lock of several keys.
    #[must_use]
    pub fn asking_all(
        label: &'static str,
        lock: &'static str,
        known: &'static [Fixed],
        locks: Option<&Locks>,
        keys: Result<Vec<LockKey>, LockError>,
    ) -> Self {
        let scope = Self::new(label, lock, known);
        scope.ask(scope.request_all(locks, keys));
        scope
    }

    /// Asks for the lock.
    pub fn ask(&self, request: Result<LockRequest, LockError>) {
        // Asked for now and not at the first poll: otherwise the request would be stored in the
        // future until then.
        let begun = request.and_then(|mut request| {
            self.check(&request);
            begin(&mut request, Caller::Task)
        });
        let begun = begun.map_err(Box::new);
        let mut state = self.state();
        state.stage = CallStage::Acquiring;
        state.asked = Some(begun);
    }

    /// Waits for what was asked for. When the future resolves, the lock is held; when it cannot be,
    /// the future never resolves, and the body is dropped.
    pub fn acquired(&self) -> impl Future<Output = &Guard> {
        // What polls the call polls the body again when the stage changes.
        poll_fn(|_| self.open().held.guard().map_or(Poll::Pending, Poll::Ready))
    }

    /// [`acquired`](Self::acquired) for a body with a return value for a busy or completed lock: `None`
    /// then.
    pub fn acquired_unless_refused(&self) -> impl Future<Output = Option<&Guard>> {
        poll_fn(|_| match self.open().held.guard() {
            None if self.stage() == CallStage::Refused => Poll::Ready(None),
            None => Poll::Pending,
            guard => Poll::Ready(guard),
        })
    }

    /// Whether it was refused because it was done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state().is_done
    }

    /// Asks for the lock and waits for it, for a body that blocks.
    ///
    /// # Errors
    /// Those of the request, and of its making.
    pub fn blocking_acquire(
        &self,
        request: Result<LockRequest, LockError>,
    ) -> Result<&Guard, LockError> {
        let request = request?;
        self.check(&request);
        let guard = match acquire::blocking_got(request)? {
            Got::Shared(value, again) if !self.reads(&value) => acquire::blocking(*again)?,
            got => self.taken(got)?,
        };
        let guard = self.open().held.put(guard)?;
        nesting::note(guard);
        Ok(guard)
    }

    /// Warns once for each function whose value for a busy lock is never returned, because its calls
    /// wait for ever, and for each that makes a `Locks` for every call.
    fn check(&self, request: &LockRequest) {
        static WARNED: NonPoisonMutex<BTreeSet<(&str, bool)>> =
            NonPoisonMutex::new(BTreeSet::new());
        let plan = &self.open().plan;
        let options = &request.options;
        let is_ever_busy =
            options.wait != Wait::Forever || options.max_waiters.or(options.queue).is_some();
        let is_alone = request.locks.has_one_handle();
        if !is_alone && (is_ever_busy || !plan.answers_busy()) {
            return;
        }
        if WARNED.lock().insert((plan.label, is_alone)) {
            let warn = if is_alone { log::made_for_one_call } else { log::never_busy };
            warn(plan.label);
        }
    }

    fn open(&self) -> &Content {
        self.0.open()
    }

    fn state(&self) -> NonPoisonGuard<'_, CallState> {
        self.open().state.lock()
    }

    fn stage(&self) -> CallStage {
        self.state().stage
    }

    fn enter(&self, stage: CallStage) {
        self.state().stage = stage;
    }

    /// The life of the lock: acquires it, watches it while the body runs, and releases it when the
    /// body has ended. Returns what the call fails with, if it fails; a lock that was lost is released
    /// with the scope.
    ///
    /// One state machine for all functions. In a box: it is larger than all else that an annotated
    /// function adds to its future.
    pub(super) fn lead(&self) -> Life<'_> {
        Life(Box::pin(self.led()))
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
        match self.acquire(asked.await?).await {
            Ok(guard) => match self.open().held.put(guard) {
                Ok(_) => self.enter(CallStage::Running),
                Err(lost) => {
                    self.enter(CallStage::Ended);
                    return Some(lost);
                }
            },
            Err(error) if self.state().value.is_none() && self.open().plan.answers(&error) => {
                self.state().is_done = !error.is_busy();
                self.enter(CallStage::Refused);
                self.ended().await;
                return None;
            }
            Err(error) => {
                self.enter(CallStage::Ended);
                return Some(error);
            }
        }
        if let Some(lost) = self.watch().await {
            // The body has to go before the lock does: the caller drops it, and the scope releases.
            return Some(lost);
        }
        let (lost, finish) = {
            let mut state = self.state();
            (state.lost.take().map(|lost| *lost), std::mem::take(&mut state.finish))
        };
        self.open().held.released(lost, finish).await
    }

    async fn acquire(&self, asked: Result<Begun, Box<LockError>>) -> Result<Guard, LockError> {
        let mut begun = asked.map_err(|error| *error)?;
        match begun.got().await? {
            Got::Shared(value, again) if !self.reads(&value) => Box::pin(again.acquire()).await,
            got => self.taken(got),
        }
    }

    /// The type of the function's value is known from here on.
    pub(super) fn set_reads(&self, reads: fn(&StoredValue) -> bool) {
        self.state().reads = Some(reads);
    }

    fn reads(&self, value: &StoredValue) -> bool {
        let reads = self.state().reads;
        reads.is_some_and(|reads| reads(value))
    }

    /// Keeps the value of a call that had done it, for what reads it.
    fn taken(&self, got: Got) -> Result<Guard, LockError> {
        match got {
            Got::Guard(guard) => Ok(guard),
            Got::Done(value, done) => {
                self.state().value = Some(value);
                Err(done)
            }
            Got::Shared(value, _) => {
                self.state().value = Some(value);
                // It is replaced by the value, which can be read.
                Err(LockError::Shutdown)
            }
        }
    }

    pub(super) fn take_value(&self) -> Option<StoredValue> {
        self.state().value.take()
    }

    pub(super) fn guard(&self) -> Option<&Guard> {
        self.open().held.guard()
    }

    /// Ends when the body has ended, or when the lock is lost before that.
    async fn watch(&self) -> Option<LockError> {
        let mut interrupted = pin!(self.open().held.interrupted());
        // The body is polled first, because most bodies end with that poll.
        let mut is_first = true;
        poll_fn(|context| {
            if self.stage() == CallStage::Ended {
                return Poll::Ready(None);
            }
            if std::mem::take(&mut is_first) {
                return Poll::Pending;
            }
            interrupted.as_mut().poll(context).map(Some)
        })
        .await
    }

    async fn ended(&self) {
        poll_fn(|_| if self.stage() == CallStage::Ended { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    fn end(&self, lost: Option<LockError>, finish: Finish) {
        let mut state = self.state();
        state.stage = CallStage::Ended;
        (state.lost, state.finish) = (lost.map(Box::new), finish);
    }

    /// One poll of the call. `poll` polls the body, and tells how the hold ends when it has ended.
    ///
    /// The body is never polled once the lock is lost. The call ends then, and its caller drops the
    /// body before the lock.
    pub(super) fn step(
        &self,
        life: &mut Life<'_>,
        poll: &mut dyn FnMut(&mut Context<'_>) -> Poll<Finish>,
        context: &mut Context<'_>,
    ) -> Poll<Option<LockError>> {
        loop {
            if matches!(self.stage(), CallStage::Starting | CallStage::Refused | CallStage::Running)
                && let Some(lost) = self.poll_body(poll, context)
            {
                return Poll::Ready(Some(lost));
            }
            let stage = self.stage();
            let failed = life.0.as_mut().poll(context);
            if failed.is_ready() {
                return failed;
            }
            if self.stage() == stage {
                return Poll::Pending;
            }
        }
    }

    /// Returns why the lock was lost before the body ended.
    fn poll_body(
        &self,
        poll: &mut dyn FnMut(&mut Context<'_>) -> Poll<Finish>,
        context: &mut Context<'_>,
    ) -> Option<LockError> {
        if let Some(error) = self.open().held.interruption() {
            return Some(error);
        }
        if let Poll::Ready(finish) = self.open().held.within(|| poll(context)) {
            self.end(self.open().held.loss(), finish);
        }
        None
    }

    /// The body is about to be dropped.
    pub(super) fn leaves(&self) {
        if self.stage() != CallStage::Ended {
            self.open().held.leave();
        }
    }

    /// The body has been dropped.
    pub(super) fn left(&self) {
        self.open().held.left();
    }

    /// Runs a body that blocks, and releases what it acquired.
    pub(super) fn within<T>(
        &self,
        body: impl FnOnce() -> T,
        finish: impl FnOnce(&T) -> Finish,
    ) -> (T, Option<LockError>) {
        let value = self.open().held.within(body);
        let finish = finish(&value);
        (value, self.leave(finish))
    }

    fn leave(&self, finish: Finish) -> Option<LockError> {
        let lost = self.open().held.loss();
        crate::api::blocking::block_on(self.open().held.released(lost, finish))
    }
}

fn manager(given: Option<&Locks>) -> Result<Cow<'_, Locks>, LockError> {
    match given {
        Some(locks) => Ok(Cow::Borrowed(locks)),
        None => Locks::global().map(Cow::Owned),
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("held", &self.open().held).finish_non_exhaustive()
    }
}

/// The request for one of a number of permits that is only known at run time.
pub fn with_permits(mut request: LockRequest, limit: u32) -> LockRequest {
    request.kind = Kind::Permit { limit };
    request
}
