//! Answers to clients whose request did not get its lock, or lost it.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use redis_locks::LockError;

use crate::body::Body;
use crate::log;

/// In which form a client reads an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Problem,
    Grpc,
}

impl Form {
    pub(crate) fn of(request: &Parts) -> Self {
        if is_grpc(&request.headers) { Self::Grpc } else { Self::Problem }
    }
}

/// Whether these are the headers of a message of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let rest = kind.strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// The texts for clients. None of them comes from an error, which names keys, hosts and processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) grpc_code: i32,
    /// The reason for a program: one status has several.
    pub(crate) code: &'static str,
    pub(crate) detail: &'static str,
}

impl Answer {
    fn to(error: &LockError) -> Self {
        let status = StatusCode::from_u16(error.http_status());
        let (code, detail) = match error {
            LockError::Busy { .. } => {
                ("busy", "Another request is working on this. Try again when it has ended.")
            }
            LockError::Crowded { .. } => {
                ("crowded", "Too many requests wait for this. Try again later.")
            }
            LockError::Done { .. } => ("done", "This was done already."),
            LockError::Superseded { .. } => ("superseded", "A newer request does this."),
            LockError::Mismatch { .. } => ("mismatch", "This stands for another request."),
            LockError::Backend { .. } | LockError::Shutdown => ("unavailable", "Try again later."),
            // The inner service may have done its work.
            LockError::Lost { .. } => ("lost", "Look at the outcome before you try again."),
            _ => ("not_set_up", "The service is not set up for this request."),
        };
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, grpc_code: error.grpc_code(), code, detail }
    }

    pub(crate) fn response(self, form: Form) -> Response<Body> {
        let Self { status, grpc_code, code, detail } = self;
        let title = status.canonical_reason().unwrap_or_default();
        let mut response = match form {
            Form::Problem => {
                let number = status.as_u16();
                let body = format!(
                    r#"{{"type":"about:blank","title":"{title}","status":{number},"code":"{code}","detail":"{detail}"}}"#
                );
                let mut response = Response::new(Body::from(body));
                *response.status_mut() = status;
                let kind = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Form::Grpc => {
                let mut response = Response::new(Body::from(String::new()));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert("grpc-status", grpc_code.into());
                headers.insert("grpc-message", HeaderValue::from_static(detail));
                response
            }
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }
}

/// The default answer to a lock that failed.
pub(crate) fn answer(error: &LockError, form: Form) -> Response<Body> {
    let answer = Answer::to(error);
    log::answered(error, answer.status.as_u16());
    answer.response(form)
}
