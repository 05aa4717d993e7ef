//! The bodies of what the layers pass on, and of what they answer themselves.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// Any error, of a body or of a service.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A body of a request or response, whatever type it had before. Its length and its trailers are those of the body
/// inside.
pub struct Body(UnsyncBoxBody<Bytes, BoxError>);

impl Body {
    /// The same body as this type.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(body.map_err(Into::into).boxed_unsync())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Whole { data: text.into(), trailers: None }.into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

/// A body that is all there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl From<Whole> for Body {
    fn from(whole: Whole) -> Self {
        Self::new(Frames {
            data: Some(whole.data).filter(|it| !it.is_empty()),
            trailers: whole.trailers,
        })
    }
}

/// The frames of a body that is all there. With trailers its length is not told, since HTTP/1 sends trailers only
/// then.
struct Frames {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, Bytes::len) as u64;
        if self.trailers.is_some() { SizeHint::default() } else { SizeHint::with_exact(length) }
    }
}
