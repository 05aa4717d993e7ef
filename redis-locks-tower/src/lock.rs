//! Requests that run under a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use redis_locks::{Guard, LockError, LockRequest, Locks};
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{Form, answer};
use crate::body::{Body, BoxError};
use crate::task::{Start, in_task, take_ready};

type OnError = Arc<dyn Fn(LockError) -> Response<Body> + Send + Sync>;

/// Runs each request under a lock. A function chooses the lock; if it returns `None`, the request runs without one.
///
/// ```
/// use axum::{Router, routing::post};
/// use redis_locks::Locks;
/// use redis_locks_tower::LockLayer;
///
/// let locks = Locks::in_memory();
/// let layer = LockLayer::new(locks.clone(), move |parts: &http::request::Parts| {
///     Ok(Some(locks.mutex(format!("path:{}", parts.uri.path())).no_wait()))
/// });
/// let app: Router = Router::new().route("/import", post(|| async { "imported" })).layer(layer);
/// ```
///
/// The lock is released when the *head* of the response is ready. A body that is streamed after it is not protected,
/// and neither is work that the inner service has spawned.
///
/// | What happens | The client gets |
/// |---|---|
/// | another holder has the lock for longer than the request's `wait` | 409 |
/// | the work was done before, by [`once`](LockRequest::once) | 409 |
/// | the lock belongs to a call with [other input](LockRequest::same) | 422 |
/// | more calls wait than `max_waiters` allows | 429 |
/// | the lock server can't be used, or these locks are shut down | 503 with `Retry-After`; the inner service did not run |
/// | the lock is lost while the inner service runs | 500; the service is dropped at its next await |
/// | the function fails, or the request is invalid | 500 |
///
/// These answers are `application/problem+json` (RFC 9457), and name no key, host or process. A gRPC client gets a
/// gRPC status. [`on_error`](Self::on_error) replaces these answers. Set `wait` in the request: without a limit a
/// client waits for the lock until it hangs up.
///
/// With [`once`](LockRequest::once) a response counts as success when its status is below 400 and it has no
/// `grpc-status` other than 0.
///
/// The service runs in the [scope](Locks::scope) of `locks`, so annotated functions that it calls use them.
///
/// # Clients that hang up
/// When a client hangs up, the inner service is dropped, and the lock is released within milliseconds. With
/// [`detached`](Self::detached) the service runs to its end.
#[derive(Clone)]
#[must_use = "a layer does nothing until a service is built with it"]
pub struct LockLayer<F> {
    locks: Locks,
    request: F,
    on_error: Option<OnError>,
    is_detached: bool,
}

impl<F> LockLayer<F>
where
    F: Fn(&Parts) -> Result<Option<LockRequest>, LockError>,
{
    /// Makes a layer from a function that says which lock a request needs. The function is called first, and must not
    /// block.
    pub fn new(locks: Locks, request: F) -> Self {
        Self { locks, request, on_error: None, is_detached: false }
    }

    /// The answer to a client whose request did not get its lock, or lost it, instead of the default one.
    ///
    /// Don't send the error's text: it names the key, and the host and process of the holder.
    ///
    /// ```
    /// # use redis_locks_tower::LockLayer;
    /// # let locks = redis_locks::Locks::in_memory();
    /// # let by_path = locks.clone();
    /// let layer = LockLayer::new(locks, move |parts: &http::request::Parts| {
    ///     Ok(Some(by_path.mutex(parts.uri.path()).no_wait()))
    /// })
    /// .on_error(|_error| http::Response::new(redis_locks_tower::Body::from("busy".to_owned())));
    /// ```
    pub fn on_error<B>(
        self,
        answer: impl Fn(LockError) -> Response<B> + Send + Sync + 'static,
    ) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let on_error: OnError = Arc::new(move |error| answer(error).map(Body::new));
        Self { on_error: Some(on_error), ..self }
    }

    /// Lets a service that has begun run to its end, under its lock, even if the client hangs up. It runs in a
    /// separate task.
    ///
    /// A request that still waits for its lock ends as before. [`Locks::drain`] waits for such tasks.
    ///
    /// ```
    /// # use redis_locks_tower::LockLayer;
    /// # let locks = redis_locks::Locks::in_memory();
    /// # let by_path = locks.clone();
    /// let layer = LockLayer::new(locks, move |parts: &http::request::Parts| {
    ///     Ok(Some(by_path.mutex(parts.uri.path()).no_wait()))
    /// })
    /// .detached();
    /// ```
    pub fn detached(self) -> Self {
        Self { is_detached: true, ..self }
    }
}

impl<S, F: Clone> Layer<S> for LockLayer<F> {
    type Service = LockService<S, F>;

    fn layer(&self, inner: S) -> LockService<S, F> {
        LockService { inner, layer: self.clone() }
    }
}

impl<F> fmt::Debug for LockLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockLayer");
        shown.field("is_detached", &self.is_detached).finish_non_exhaustive()
    }
}

/// The service that [`LockLayer`] makes.
#[derive(Clone, Debug)]
pub struct LockService<S, F> {
    inner: S,
    layer: LockLayer<F>,
}

impl<S, F, B, C> Service<Request<B>> for LockService<S, F>
where
    S: Service<Request<B>, Response = Response<C>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    F: Fn(&Parts) -> Result<Option<LockRequest>, LockError>,
    B: Send + 'static,
    C: http_body::Body<Data = Bytes> + Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut inner = take_ready(&mut self.inner);
        let (parts, body) = request.into_parts();
        let wanted = (self.layer.request)(&parts);
        let form = Form::of(&parts);
        let request = Request::from_parts(parts, body);
        let (locks, is_detached) = (self.layer.locks.clone(), self.layer.is_detached);
        let on_error = self.layer.on_error.clone();
        Box::pin(async move {
            let outcome = match wanted {
                Ok(None) => locks.scope(inner.call(request)).await.map_err(Failed::Inner),
                Ok(Some(lock)) if is_detached => {
                    let work = move |start: Start| async move {
                        let call = async move {
                            start.begin().await;
                            inner.call(request).await
                        };
                        run_under(&locks, lock, call).await
                    };
                    in_task(work).await.unwrap_or(Err(Failed::Lock(LockError::Shutdown)))
                }
                Ok(Some(lock)) => {
                    run_under(&locks, lock, async move { inner.call(request).await }).await
                }
                Err(error) => Err(Failed::Lock(error)),
            };
            match outcome {
                Ok(response) | Err(Failed::Answer(response)) => Ok(response.map(Body::new)),
                Err(Failed::Inner(error)) => Err(error),
                Err(Failed::Lock(error)) => Ok(match on_error {
                    Some(on_error) => on_error(error),
                    None => answer(&error, form),
                }),
            }
        })
    }
}

/// What is no success under a lock.
enum Failed<C, E> {
    Lock(LockError),
    /// The service has answered with an error.
    Answer(Response<C>),
    Inner(E),
}

impl<C, E> From<LockError> for Failed<C, E> {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

async fn run_under<C, E>(
    locks: &Locks,
    lock: LockRequest,
    call: impl Future<Output = Result<Response<C>, E>> + Send,
) -> Result<Response<C>, Failed<C, E>> {
    let body = async move |_: &Guard| match call.await {
        Ok(response) if is_success(&response) => Ok(response),
        Ok(response) => Err(Failed::Answer(response)),
        Err(error) => Err(Failed::Inner(error)),
    };
    locks.scope(lock.try_run(body)).await
}

fn is_success<C>(response: &Response<C>) -> bool {
    let failed = response.headers().get("grpc-status").is_some_and(|code| code != "0");
    let status = response.status();
    !failed && !status.is_client_error() && !status.is_server_error()
}
