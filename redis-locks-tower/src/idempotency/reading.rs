//! Bodies that are read as a whole before they are passed on.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::{Body, BoxError, Whole};

/// What reading a body came to.
pub(super) enum Read {
    Whole(Whole),
    /// It is larger than the limit, or has not arrived yet.
    Part(Body),
    Failed(Body),
}

/// Reads at most `limit` bytes. Without `waits` it reads what is there at once.
pub(super) async fn read(mut body: Body, limit: usize, waits: bool) -> Read {
    if body.size_hint().lower() > limit as u64 {
        return Read::Part(body);
    }
    let mut frames = VecDeque::new();
    let mut size = 0_usize;
    loop {
        let next = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Pending if !waits => Poll::Ready(None),
            poll => poll.map(Some),
        });
        match next.await {
            Some(Some(Ok(frame))) => {
                size = size.saturating_add(frame.data_ref().map_or(0, Bytes::len));
                frames.push_back(Ok(frame));
            }
            Some(Some(Err(error))) => {
                frames.push_back(Err(error));
                return Read::Failed(Body::new(Rejoined { frames, rest: body }));
            }
            Some(None) => return Read::Whole(whole(frames)),
            None => return Read::Part(Body::new(Rejoined { frames, rest: body })),
        }
        if size > limit {
            return Read::Part(Body::new(Rejoined { frames, rest: body }));
        }
    }
}

fn whole(frames: VecDeque<Result<Frame<Bytes>, BoxError>>) -> Whole {
    let (mut data, mut trailers) = (Vec::new(), None);
    for frame in frames.into_iter().flatten() {
        match frame.into_data() {
            Ok(more) => data.extend_from_slice(&more),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Whole { data: data.into(), trailers }
}

/// A body some of whose frames were read.
struct Rejoined {
    frames: VecDeque<Result<Frame<Bytes>, BoxError>>,
    rest: Body,
}

impl http_body::Body for Rejoined {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let frames = self.frames.iter().flatten().filter_map(Frame::data_ref);
        let read: u64 = frames.map(|data| data.len() as u64).sum();
        let (rest, mut hint) = (self.rest.size_hint(), SizeHint::new());
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
