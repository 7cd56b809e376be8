//! Response bodies as the HTTP library asks for them: a document, a stream,
//! or events that were known from the start.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::sim::stream::{Broken, Speech};

/// A response's body.
pub(super) enum ReplyBody {
    /// A document; `None` once it is taken.
    Whole(Option<Bytes>),
    /// Events.
    Stream(StreamBody),
    /// Events that were known from the start.
    Canned(VecDeque<Bytes>),
}

/// The library's share of a stream.
pub(super) struct StreamBody(pub(super) Arc<Speech>);

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Canned(events) => {
                Poll::Ready(events.pop_front().map(|event| Ok(Frame::data(event))))
            }
            Self::Stream(StreamBody(speech)) => speech
                .poll_chunk(context)
                .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) | Self::Canned(_) => SizeHint::new(),
        }
    }
}
