use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, response};
use redis_locks::{Guard, LockError, LockRequest, Origin, key};
use tower_service::Service;

use super::reading::{Read, read};
use super::stored::Stored;
use super::{IdempotencyLayer, OnOutage, Scoped, Settings, key};
use crate::answer::{Answer, Form, answer, is_grpc};
use crate::body::{Body, BoxError, Whole};
use crate::log;
use crate::task::{Start, in_task, take_ready};

/// What [`IdempotencyLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct IdempotencyService<S, F> {
    inner: S,
    layer: IdempotencyLayer<F>,
}

impl<S, F> IdempotencyService<S, F> {
    pub(super) fn new(inner: S, layer: IdempotencyLayer<F>) -> Self {
        Self { inner, layer }
    }
}

impl<S, F, B, C> Service<Request<B>> for IdempotencyService<S, F>
where
    S: Service<Request<Body>, Response = Response<C>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    F: Scoped,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
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
        let inner = take_ready(&mut self.inner);
        let IdempotencyLayer { locks, settings, scope } = &self.layer;
        let (parts, body) = request.into_parts();
        let (body, form) = (Body::new(body), Form::of(&parts));
        let counts = settings.methods.contains(&parts.method);
        let key = if counts { key::of(&parts.headers) } else { Ok(None) };
        let locks = locks.clone();
        match key {
            Err(wrong) => refused(bad_request("key_invalid", wrong), form),
            Ok(None) if counts && settings.is_required => refused(MISSING, form),
            Ok(None) => {
                let mut inner = inner;
                let call = async move { inner.call(Request::from_parts(parts, body)).await };
                Box::pin(async move { Ok(locks.scope(call).await?.map(Body::new)) })
            }
            Ok(Some(key)) => {
                let name = name(&scope.scope_of(&parts), &key);
                let settings = Arc::clone(settings);
                Box::pin(async move {
                    let payload = match read(body, settings.largest_body, true).await {
                        Read::Whole(payload) => payload,
                        Read::Part(_) => return refused(TOO_LARGE, form).await,
                        Read::Failed(_) => return refused(INCOMPLETE, form).await,
                    };
                    let lock = name.map(|name| {
                        let lock = locks.mutex(name).once(settings.remember).wait(settings.wait);
                        lock.replay().same(input(&parts, &payload)).metric_name("idempotency")
                    });
                    let largest = locks.largest_value();
                    let keyed = Keyed { settings, form, largest };
                    let work = |start| async move {
                        let request = Request::from_parts(parts, Body::from(payload));
                        let first = First { inner, request, start };
                        locks.scope(keyed.run(lock, first)).await
                    };
                    let ended = || Ok(answer(&LockError::Shutdown, form));
                    in_task(work).await.unwrap_or_else(ended)
                })
            }
        }
    }
}

const MISSING: Answer = bad_request("key_missing", "The Idempotency-Key is missing.");
const INCOMPLETE: Answer =
    bad_request("payload_incomplete", "The payload has not arrived as a whole.");
const TOO_LARGE: Answer = Answer {
    status: StatusCode::PAYLOAD_TOO_LARGE,
    grpc_code: 8,
    code: "payload_too_large",
    detail: "The payload is too large for a request with a key.",
};

const fn bad_request(code: &'static str, detail: &'static str) -> Answer {
    Answer { status: StatusCode::BAD_REQUEST, grpc_code: 3, code, detail }
}

/// Answers a client whose request can't run as it is.
fn refused<E: 'static>(
    answer: Answer,
    form: Form,
) -> Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>> {
    Box::pin(async move { Ok(answer.response(form)) })
}

/// The name of the lock. Its parts are escaped, so no two scopes and keys have the same.
fn name(scope: &str, key: &str) -> Result<redis_locks::LockKey, LockError> {
    match scope {
        "" => key!("idempotency:{key}"),
        _ => key!("idempotency:{scope}:{key}"),
    }
}

/// What a key belongs to. Each part follows its length, so no two requests have the same bytes.
fn input(parts: &Parts, payload: &Whole) -> Vec<u8> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut bytes = Vec::new();
    for part in [parts.method.as_str().as_bytes(), path.as_bytes(), &payload.data] {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// A request with a key, before it runs.
struct First<S> {
    inner: S,
    request: Request<Body>,
    start: Start,
}

impl<S, C> First<S>
where
    S: Service<Request<Body>, Response = Response<C>>,
    C: http_body::Body<Data = Bytes> + Send + 'static,
    C::Error: Into<BoxError>,
{
    async fn run(mut self) -> Result<Response<Body>, S::Error> {
        self.start.begin().await;
        Ok(self.inner.call(self.request).await?.map(Body::new))
    }
}

/// Why a call stores nothing.
enum Unstored<E> {
    Lock(LockError),
    /// The answer is for this client alone.
    Answer(Response<Body>),
    Inner(E),
}

impl<E> From<LockError> for Unstored<E> {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

struct Keyed {
    settings: Arc<Settings>,
    form: Form,
    /// The most bytes that are stored.
    largest: usize,
}

impl Keyed {
    async fn run<S, C>(
        &self,
        lock: Result<LockRequest, LockError>,
        first: First<S>,
    ) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<C>> + Send,
        S::Future: Send,
        S::Error: Send,
        C: http_body::Body<Data = Bytes> + Send + 'static,
        C::Error: Into<BoxError>,
    {
        // Both are left there by the body, which `call` may drop.
        let (first, whole) = (Mutex::new(Some(first)), Mutex::new(None));
        let (waiting, own) = (&first, &whole);
        let body = async move |_: &Guard| {
            let Some(first) = take(waiting) else {
                return Err(Unstored::Lock(LockError::Shutdown));
            };
            let response = first.run().await.map_err(Unstored::Inner)?;
            let (response, stored) = self.storable(response).await.map_err(Unstored::Answer)?;
            *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
            Ok(stored)
        };
        let outcome = match lock {
            Ok(lock) => lock.call(body).await,
            Err(error) => Err(Unstored::Lock(error)),
        };
        match outcome {
            Ok(reply) if reply.origin() == Origin::Body => {
                Ok(take(&whole).unwrap_or_else(|| answer(&LockError::Shutdown, self.form)))
            }
            Ok(reply) => Ok(reply.into_value().response().unwrap_or_else(|| self.unknown())),
            Err(Unstored::Answer(response)) => Ok(response),
            Err(Unstored::Inner(error)) => Err(error),
            Err(Unstored::Lock(error)) => self.failed(error, take(&first)).await,
        }
    }

    /// The answer to a request whose lock failed.
    async fn failed<S, C>(
        &self,
        error: LockError,
        first: Option<First<S>>,
    ) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<C>>,
        C: http_body::Body<Data = Bytes> + Send + 'static,
        C::Error: Into<BoxError>,
    {
        match (&error, first) {
            (LockError::Backend { .. }, Some(first))
                if self.settings.on_outage == OnOutage::Pass =>
            {
                log::passed(&error);
                let mut response = first.run().await?;
                let skipped = HeaderValue::from_static("true");
                response.headers_mut().insert("idempotency-skipped", skipped);
                Ok(response)
            }
            (LockError::Lost { .. }, _) => {
                log::answered(&error, 503);
                let detail = "Whether this was done is not known. Try again later.";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Ok(Answer { status, grpc_code: 14, code: "unknown_outcome", detail }
                    .response(self.form))
            }
            (LockError::Done { .. }, _) => Ok(self.unknown()),
            (LockError::Mismatch { .. }, _) => Ok(self.mismatch()),
            _ => Ok(answer(&error, self.form)),
        }
    }

    fn mismatch(&self) -> Response<Body> {
        let detail = "The Idempotency-Key was used for another request.";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Answer { status, grpc_code: 3, code: "mismatch", detail }.response(self.form)
    }

    /// The answer if the first answer is lost.
    fn unknown(&self) -> Response<Body> {
        let detail = "This was done already, and its answer is not known any more.";
        let status = StatusCode::CONFLICT;
        Answer { status, grpc_code: 6, code: "done", detail }.response(self.form)
    }

    /// Reads an answer that can be stored; `Err` is an answer that can't or must not be.
    async fn storable(
        &self,
        response: Response<Body>,
    ) -> Result<(Response<Body>, Stored), Response<Body>> {
        let (head, body) = response.into_parts();
        let size = http_body::Body::size_hint(&body);
        let is_grpc = is_grpc(&head.headers);
        let has_end = size.exact().is_some() || is_grpc;
        let is_upgrade = head.status.is_informational();
        if is_upgrade
            || !has_end
            || !(self.settings.remember_if)(&head)
            || is_passing(&head.headers)
        {
            return Err(Response::from_parts(head, body));
        }
        let whole = match read(body, self.largest, !is_grpc).await {
            Read::Whole(whole) => whole,
            Read::Part(body) => return Err(self.too_large(head, body)),
            Read::Failed(body) => return Err(Response::from_parts(head, body)),
        };
        let stored = Stored::new(&head, &whole, &self.settings.stored_headers);
        if stored.size().is_none_or(|size| size > self.largest) {
            return Err(self.too_large(head, whole.into()));
        }
        let fails = whole.trailers.as_ref().is_some_and(is_passing);
        let response = Response::from_parts(head, Body::from(whole));
        if fails { Err(response) } else { Ok((response, stored)) }
    }

    fn too_large(&self, head: response::Parts, body: Body) -> Response<Body> {
        log::not_stored(self.largest);
        Response::from_parts(head, body)
    }
}

/// Whether gRPC tells of a failure of the server, which a repetition need not have.
fn is_passing(headers: &HeaderMap) -> bool {
    let code = headers.get("grpc-status").map(HeaderValue::as_bytes);
    matches!(code, Some(b"1" | b"2" | b"4" | b"8" | b"10" | b"13" | b"14" | b"15"))
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}
