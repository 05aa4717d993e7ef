//! Requests that a client may repeat: the header `Idempotency-Key`.

mod key;
mod reading;
mod service;
mod stored;

pub use service::IdempotencyService;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, response};
use redis_locks::{Locks, Wait};
use tower_layer::Layer;

type RememberIf = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;

/// Runs the handler once for each `Idempotency-Key`, and answers repeated requests with the first answer.
///
/// ```
/// use axum::{Router, routing::post};
/// use redis_locks::Locks;
/// use redis_locks_tower::IdempotencyLayer;
///
/// let layer = IdempotencyLayer::new(Locks::in_memory()).scope(|parts: &http::request::Parts| {
///     // Set by your authentication, which comes before this layer.
///     let user = parts.extensions.get::<u64>().copied().unwrap_or_default();
///     format!("user:{user}")
/// });
/// let app: Router = Router::new().route("/payments", post(|| async { "paid" })).layer(layer);
/// ```
///
/// | A request | gets |
/// |---|---|
/// | `POST` or `PATCH` with a new key | runs; its answer is remembered, unless it is a 5xx |
/// | the same key and the same payload, later | the stored status, headers and body, and `Idempotent-Replayed: true` |
/// | the same key while the first request runs | 409, or the first answer within [`wait`](Self::wait) |
/// | the same key with another method, path, query or payload | 422 |
/// | no key | runs without a lock; 400 with [`required`](Self::required) |
/// | a key that is empty, longer than 255 bytes or not printable | 400 |
/// | a payload larger than [`largest_body`](Self::largest_body) | 413 |
/// | a key, and the lock server can't be used | 503 with `Retry-After`; see [`on_outage`](Self::on_outage) |
/// | a key, and the lock is lost while it runs | 503; nothing is remembered |
///
/// The errors are `application/problem+json` (RFC 9457). When a client hangs up, its handler runs on in a separate
/// task, and the answer is remembered. If the handler panics, nothing is remembered.
///
/// # What is remembered
/// The status, the headers and the body, byte for byte. `Set-Cookie`, `Authorization`, `Date` and the headers of a
/// connection are not stored; [`store_header`](Self::store_header) adds some. An answer that is larger than
/// [`largest_value`](redis_locks::LocksBuilder::largest_value) when stored, or a body without a known length, is
/// passed on but not remembered: the next request with its key runs again. So put compression around this layer. A
/// unary gRPC answer is remembered with its trailers, unless its status reports a failure of the server.
///
/// # What it does not promise
/// The answer is stored after the effect of the handler, so a process that dies between the two runs the effect again.
/// The page [`docs/IDEMPOTENCY.md`](https://docs.rs/redis-locks/latest/redis_locks/guide/idempotency) says what to do
/// about that.
///
/// # Where to put it
/// Inside authentication, which the [`scope`](Self::scope) needs, and around the whole router. axum's `nest` removes
/// its prefix from the path that inner layers see, and a key belongs to one path.
#[derive(Clone)]
#[must_use = "a layer does nothing until a service is built with it"]
pub struct IdempotencyLayer<F = Unscoped> {
    locks: Locks,
    settings: Arc<Settings>,
    scope: F,
}

/// The state of an [`IdempotencyLayer`] that needs a [`scope`](IdempotencyLayer::scope) before it is a layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unscoped;

/// Whose keys they are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scope;

impl Scope {
    /// All clients share their keys, so a client that guesses another client's key gets that answer. Only for
    /// services whose answers anyone may read.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone());
    /// ```
    #[must_use]
    pub fn everyone() -> fn(&Parts) -> String {
        |_| String::new()
    }
}

/// What happens to a request with a key while the lock server can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum OnOutage {
    /// It gets 503, and the handler does not run.
    #[default]
    Refuse,
    /// It runs without its lock, perhaps twice. The answer has the header `Idempotency-Skipped: true`, and a warning is
    /// emitted.
    Pass,
}

#[derive(Clone)]
struct Settings {
    remember: Duration,
    wait: Wait,
    methods: Vec<Method>,
    remember_if: RememberIf,
    is_required: bool,
    on_outage: OnOutage,
    largest_body: usize,
    stored_headers: Vec<String>,
}

impl IdempotencyLayer {
    /// A layer that needs a [`scope`](Self::scope).
    pub fn new(locks: Locks) -> Self {
        let settings = Settings {
            remember: Duration::from_secs(24 * 60 * 60),
            wait: Wait::None,
            methods: vec![Method::POST, Method::PATCH],
            remember_if: Arc::new(|head| !head.status.is_server_error()),
            is_required: false,
            on_outage: OnOutage::Refuse,
            largest_body: 64 * 1024,
            stored_headers: Vec::new(),
        };
        Self { locks, settings: Arc::new(settings), scope: Unscoped }
    }
}

impl<F> IdempotencyLayer<F> {
    /// Whose keys they are: the user, the tenant, the API client. A key of one scope never replays an answer of
    /// another. For services without users there is [`Scope::everyone`]; an empty text means the same.
    ///
    /// The text is a part of the key at the lock server, so don't use secrets.
    ///
    /// ```
    /// # use redis_locks_tower::IdempotencyLayer;
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(|parts: &http::request::Parts| {
    ///     parts.extensions.get::<u64>().map(|user| format!("user:{user}")).unwrap_or_default()
    /// });
    /// ```
    pub fn scope<G: Fn(&Parts) -> String>(self, scope: G) -> IdempotencyLayer<G> {
        IdempotencyLayer { locks: self.locks, settings: self.settings, scope }
    }

    /// How long an answer is remembered, counted from the start of its request. 24 hours by default.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).remember(std::time::Duration::from_secs(3_600));
    /// ```
    pub fn remember(self, period: Duration) -> Self {
        self.set(|settings| settings.remember = period)
    }

    /// How long a request waits for a running request with the same key. It does not wait by default.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).wait(std::time::Duration::from_secs(5));
    /// ```
    pub fn wait(self, wait: Duration) -> Self {
        self.set(|settings| settings.wait = wait.into())
    }

    /// The methods whose keys count, instead of `POST` and `PATCH`. Other requests run without a lock.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).methods([http::Method::POST]);
    /// ```
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.set(|settings| settings.methods = methods.into_iter().collect())
    }

    /// Which answers are remembered, by their head. By default all with a status below 500.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).remember_if(|head| head.status.is_success());
    /// ```
    pub fn remember_if(
        self,
        rule: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.remember_if = Arc::new(rule))
    }

    /// Answers 400 to a request without a key, if it has one of the [`methods`](Self::methods).
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).required();
    /// ```
    pub fn required(self) -> Self {
        self.set(|settings| settings.is_required = true)
    }

    /// What happens while the lock server can't be used. By default 503.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Pass, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).on_outage(Pass);
    /// ```
    pub fn on_outage(self, choice: OnOutage) -> Self {
        self.set(|settings| settings.on_outage = choice)
    }

    /// The largest payload of a request with a key, in bytes: 64 KiB by default. It is read before the handler runs.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).largest_body(1024 * 1024);
    /// ```
    pub fn largest_body(self, bytes: usize) -> Self {
        self.set(|settings| settings.largest_body = bytes)
    }

    /// Also stores this header of answers, such as `set-cookie`.
    ///
    /// ```
    /// # use redis_locks_tower::{IdempotencyLayer, Scope};
    /// # let locks = redis_locks::Locks::in_memory();
    /// let layer = IdempotencyLayer::new(locks).scope(Scope::everyone()).store_header("set-cookie");
    /// ```
    pub fn store_header(self, name: impl AsRef<str>) -> Self {
        self.set(|settings| settings.stored_headers.push(name.as_ref().to_owned()))
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

/// Something that says whose keys they are.
#[diagnostic::on_unimplemented(
    message = "this `IdempotencyLayer` does not know whose keys they are",
    label = "add `.scope(|parts| …)`, or `.scope(Scope::everyone())`"
)]
pub trait Scoped: Clone {
    #[doc(hidden)]
    fn scope_of(&self, parts: &Parts) -> String;
}

#[diagnostic::do_not_recommend]
impl<F: Fn(&Parts) -> String + Clone> Scoped for F {
    fn scope_of(&self, parts: &Parts) -> String {
        self(parts)
    }
}

impl<S, F: Scoped> Layer<S> for IdempotencyLayer<F> {
    type Service = IdempotencyService<S, F>;

    fn layer(&self, inner: S) -> IdempotencyService<S, F> {
        IdempotencyService::new(inner, self.clone())
    }
}

impl<F> fmt::Debug for IdempotencyLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("remember", &self.remember).field("wait", &self.wait);
        shown.field("methods", &self.methods).finish_non_exhaustive()
    }
}
