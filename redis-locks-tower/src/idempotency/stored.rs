//! An answer as it is stored, and what of it is.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    AUTHORIZATION, CONNECTION, DATE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::body::{Body, Whole};

/// Secrets of one client, what concerns one connection, and the time of the first answer.
const NOT_STORED: [HeaderName; 9] = [
    AUTHORIZATION,
    CONNECTION,
    DATE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    SET_COOKIE,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    status: u16,
    headers: Vec<(String, Octets)>,
    body: Octets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trailers: Option<Vec<(String, Octets)>>,
}

/// Bytes that are mostly text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Octets {
    Text(String),
    Binary { base64: String },
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Binary { base64: BASE64_STANDARD.encode(bytes) },
        }
    }
}

impl Octets {
    fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Binary { base64 } => BASE64_STANDARD.decode(base64).ok(),
        }
    }
}

impl Stored {
    /// `also` names headers that are stored although they are not by default.
    pub(super) fn new(head: &Parts, body: &Whole, also: &[String]) -> Self {
        let of_connection = named_by_connection(&head.headers);
        let is_stored = |name: &HeaderName| {
            let is_left = NOT_STORED.contains(name)
                || name.as_str() == "keep-alive"
                // It announces trailers.
                || (*name == TRAILER && body.trailers.is_none())
                || of_connection.iter().any(|it| name.as_str().eq_ignore_ascii_case(it));
            !is_left || also.iter().any(|it| name.as_str().eq_ignore_ascii_case(it))
        };
        Self {
            status: head.status.as_u16(),
            headers: fields(&head.headers, is_stored),
            body: Octets::from(&body.data[..]),
            trailers: body.trailers.as_ref().map(|trailers| fields(trailers, |_| true)),
        }
    }

    /// The size in bytes of what is stored.
    pub(super) fn size(&self) -> Option<usize> {
        serde_json::to_string(self).ok().map(|json| json.len())
    }

    /// The answer again. `None` when the stored value is no answer of this layer.
    pub(super) fn response(self) -> Option<Response<Body>> {
        let data = self.body.into_bytes()?.into();
        let trailers = match self.trailers {
            Some(trailers) => Some(map(trailers)?),
            None => None,
        };
        let mut response = Response::new(Body::from(Whole { data, trailers }));
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        *response.headers_mut() = map(self.headers)?;
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        Some(response)
    }
}

/// The headers that `Connection` says are for this connection.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned()).collect()
}

fn fields(headers: &HeaderMap, is_stored: impl Fn(&HeaderName) -> bool) -> Vec<(String, Octets)> {
    let stored = headers.iter().filter(|(name, _)| is_stored(name));
    stored.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().into())).collect()
}

fn map(fields: Vec<(String, Octets)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(&value.into_bytes()?).ok()?;
        headers.append(HeaderName::try_from(name).ok()?, value);
    }
    Some(headers)
}
