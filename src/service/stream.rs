//! From the bytes of one answer to what is recorded of it: stamps, usage, how
//! it ended. A state machine fed with bytes and stamps; it refuses to know
//! sockets and clocks.

use super::chunk::{ChunkFacts, Classifier, EmptyText, Payload, StreamError};
use super::socket::ReadStamp;
use super::sse::SseDecoder;
use crate::measure::{FailureKind, Usage};
use crate::units::RunOffset;

/// Largest body of an answer that is not streamed, in bytes.
pub const WHOLE_BODY_BYTES_MAX: usize = 64 << 20;
/// Most of an answer's text that is kept, in bytes; enough for 100,000 tokens.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// What an answer has said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    /// First SSE event of any kind, comments not counted.
    pub first_event: Option<RunOffset>,
    /// Last SSE event of any kind but `[DONE]`, comments not counted.
    pub last_event: Option<RunOffset>,
    /// Events of any kind but `[DONE]`, comments not counted.
    pub events: u32,
    /// First chunk with a non-empty `choices` array.
    pub first_choice: Option<RunOffset>,
    /// Last chunk with a non-empty `choices` array.
    pub last_choice: Option<RunOffset>,
    /// Stamps of the content-bearing chunks.
    pub content: Vec<RunOffset>,
    /// Content-bearing chunks that shared a read with an earlier one.
    pub coalesced: u32,
    /// Token counts, last value seen.
    pub usage: Option<Usage>,
    /// `finish_reason`, last value seen.
    pub finish_reason: Option<String>,
    /// `[DONE]` was seen, or a whole answer was complete.
    pub done: bool,
    /// Text of the answer, as far as it was kept.
    pub text: Vec<u8>,
}

/// Why an answer is a failure although its transport was sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// Counted by this.
    pub kind: FailureKind,
    /// Code of an error object.
    pub code: Option<u16>,
    /// Not scrubbed, not bounded.
    pub message: String,
}

/// Reads one answer.
#[derive(Debug)]
pub struct AnswerReader {
    decoder: SseDecoder,
    classifier: Classifier,
    facts: AnswerFacts,
    defect: Option<Defect>,
    last_content_read: u64,
    keep_text: bool,
    /// The body of an answer that is not streamed.
    whole: Option<Vec<u8>>,
}

impl AnswerReader {
    /// A reader of a stream with room for `chunks` stamps.
    pub fn stream(empty_text: EmptyText, keep_text: bool, chunks: usize) -> Self {
        Self {
            decoder: SseDecoder::default(),
            classifier: Classifier::new(empty_text),
            facts: AnswerFacts {
                content: Vec::with_capacity(chunks),
                ..AnswerFacts::default()
            },
            defect: None,
            last_content_read: 0,
            keep_text,
            whole: None,
        }
    }

    /// From here on the answer is one JSON document.
    pub fn expect_whole(&mut self) {
        self.whole = Some(Vec::new());
    }

    /// Whether the answer is one JSON document.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// What is known so far.
    pub fn facts(&self) -> &AnswerFacts {
        &self.facts
    }

    /// Takes the bytes of one frame, which arrived with the read `stamp`.
    /// After a defect or `[DONE]` nothing is looked at any more.
    pub fn feed(&mut self, bytes: &[u8], stamp: ReadStamp) {
        if let Some(whole) = &mut self.whole {
            if whole.len() + bytes.len() > WHOLE_BODY_BYTES_MAX {
                let message = format!("a body of more than {WHOLE_BODY_BYTES_MAX} bytes");
                self.defect.get_or_insert_with(|| Defect::protocol(message));
            } else {
                whole.extend_from_slice(bytes);
            }
            return;
        }
        let Self {
            decoder,
            classifier,
            facts,
            defect,
            last_content_read,
            keep_text,
            ..
        } = self;
        let mut state = State {
            facts,
            defect,
            last_content_read,
        };
        let decoded = decoder.feed(bytes, |event| {
            if state.is_over() {
                return;
            }
            let mut text = std::mem::take(&mut state.facts.text);
            let kept = (*keep_text && text.len() < TEXT_BYTES_MAX).then_some(&mut text);
            let payload = classifier.classify(event.name, event.data, kept);
            state.facts.text = text;
            state.event(payload, event.data, stamp);
        });
        if let Err(error) = decoded {
            self.defect
                .get_or_insert_with(|| Defect::protocol(error.to_string()));
        }
    }

    /// The body has come to its proper end with the read `stamp`: what is
    /// wrong with the answer, if anything.
    pub fn finish(&mut self, stamp: ReadStamp) -> Result<(), Defect> {
        if let Some(body) = self.whole.take() {
            self.finish_whole(&body, stamp);
        }
        if let Some(defect) = &self.defect {
            return Err(defect.clone());
        }
        if self.facts.first_choice.is_none() {
            return Err(Defect::truncated("the answer ended without a choice"));
        }
        if self.facts.done || self.facts.finish_reason.is_some() {
            return Ok(());
        }
        Err(Defect::truncated(
            "the stream ended without finish_reason and [DONE]",
        ))
    }

    /// Whether all that makes a success has been seen, so that a transport that
    /// breaks or falls silent now changes nothing.
    pub fn is_complete(&self) -> bool {
        self.facts.done && self.facts.first_choice.is_some() && self.defect.is_none()
    }

    /// What an error object or a broken event has said already.
    pub fn defect(&self) -> Option<&Defect> {
        self.defect.as_ref()
    }

    /// Takes the facts.
    pub fn into_facts(self) -> AnswerFacts {
        self.facts
    }

    fn finish_whole(&mut self, body: &[u8], stamp: ReadStamp) {
        let text = self.keep_text.then_some(&mut self.facts.text);
        // An empty text in a whole answer is an answer without text.
        let payload = Classifier::new(EmptyText::NoToken).classify(b"", body, text);
        match payload {
            Payload::Chunk(chunk) => {
                self.facts.done = true;
                if chunk.has_choice {
                    self.facts.first_choice = Some(stamp.at);
                    self.facts.last_choice = Some(stamp.at);
                }
                self.facts.usage = chunk.usage;
                self.facts.finish_reason = chunk.finish_reason;
            }
            Payload::Error(error) => self.defect = Some(Defect::server(error)),
            Payload::Done | Payload::Ignored | Payload::NotJson => {
                self.defect
                    .get_or_insert_with(|| Defect::protocol(not_understood(body)));
            }
        }
    }
}

/// The parts of a reader that an event changes.
struct State<'a> {
    facts: &'a mut AnswerFacts,
    defect: &'a mut Option<Defect>,
    last_content_read: &'a mut u64,
}

impl State<'_> {
    fn is_over(&self) -> bool {
        self.facts.done || self.defect.is_some()
    }

    fn event(&mut self, payload: Payload, data: &[u8], stamp: ReadStamp) {
        self.facts.first_event.get_or_insert(stamp.at);
        if !matches!(payload, Payload::Done) {
            self.facts.last_event = Some(stamp.at);
            self.facts.events += 1;
        }
        match payload {
            Payload::Chunk(chunk) => self.chunk(chunk, stamp),
            Payload::Done => self.facts.done = true,
            Payload::Error(error) => *self.defect = Some(Defect::server(error)),
            Payload::Ignored => {}
            Payload::NotJson => *self.defect = Some(Defect::protocol(not_understood(data))),
        }
    }

    fn chunk(&mut self, chunk: ChunkFacts, stamp: ReadStamp) {
        if chunk.has_choice {
            self.facts.first_choice.get_or_insert(stamp.at);
            self.facts.last_choice = Some(stamp.at);
        }
        if chunk.content {
            let shared = stamp.read_index == *self.last_content_read;
            self.facts.coalesced += u32::from(shared);
            *self.last_content_read = stamp.read_index;
            self.facts.content.push(stamp.at);
        }
        if chunk.usage.is_some() {
            self.facts.usage = chunk.usage;
        }
        if chunk.finish_reason.is_some() {
            self.facts.finish_reason = chunk.finish_reason;
        }
    }
}

impl Defect {
    fn protocol(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Protocol,
            code: None,
            message: message.into(),
        }
    }

    fn truncated(message: &str) -> Self {
        Self {
            kind: FailureKind::TruncatedStream,
            code: None,
            message: message.to_owned(),
        }
    }

    fn server(error: StreamError) -> Self {
        Self {
            kind: FailureKind::ServerErrorEvent,
            code: error.code,
            message: error.message,
        }
    }
}

fn not_understood(data: &[u8]) -> String {
    let shown = &data[..data.len().min(120)];
    format!("not a chunk: {}", String::from_utf8_lossy(shown))
}
