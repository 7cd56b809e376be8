//! Conversations of a wanted size, and one-off requests beside them: text from
//! tokens through the calibration, a row for every answer.

use super::error::ProbeError;
use super::script;
use super::sender::{Answered, Sender, Stop};
use super::{ProbeEvent, Watch};
use crate::probe::{
    ANSWER_TOKENS_MAX, Basis, Calibration, Document, DocumentWriter, DoseRun, KneeSearch,
    NeedleRun, RequestKind, RequestRow, TurnVerdict, is_off,
};
use crate::rng::Stream;
use crate::service::chat::ChatMessage;

/// Characters of the sample that sizes are learnt from.
const SAMPLE_CHARACTERS: u64 = 20_000;

/// Characters a token holds at least, for a sample that must fit a small
/// context.
const CHARACTERS_PER_TOKEN_LEAST: u64 = 2;

/// Corrections of the size by a first turn, at most.
const CORRECTIONS_MAX: u32 = 3;

/// Output limit of requests whose answer nobody reads.
const IGNORED_ANSWER_TOKENS: u64 = 16;

/// What one arm has given so far.
#[derive(Debug, Default)]
pub(super) struct Arm {
    pub(super) rows: Vec<RequestRow>,
    pub(super) doses: Vec<DoseRun>,
    pub(super) needles: Vec<NeedleRun>,
    /// A knee search without observations.
    pub(super) search: Option<KneeSearch>,
    /// Labels of what is still to be done.
    pub(super) pending: Vec<String>,
}

impl Arm {
    /// Takes `label` off what is still to be done.
    pub(super) fn done(&mut self, label: &str) {
        if let Some(at) = self.pending.iter().position(|pending| pending == label) {
            self.pending.remove(at);
        }
    }
}

/// A conversation as it stands.
#[derive(Debug)]
pub(super) struct Conversation {
    side: String,
    /// Turns so far.
    pub(super) round: u32,
    pub(super) messages: Vec<ChatMessage>,
    previous_tokens: u64,
}

/// A turn and its row.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) row: usize,
    pub(super) answer: String,
}

/// Sends the requests of a probe and keeps their rows.
pub(super) struct Prober<'a> {
    pub(super) sender: Sender,
    pub(super) writer: DocumentWriter,
    pub(super) phrases: Stream,
    pub(super) basis: Basis,
    pub(super) context_tokens: Option<u64>,
    pub(super) calibration: Option<Calibration>,
    /// Whether a first turn has confirmed the calibration.
    pub(super) sized: bool,
    pub(super) notes: Vec<String>,
    pub(super) watch: Watch<'a>,
}

impl Prober<'_> {
    /// Learns tokens per character, and whether reuse can be observed.
    /// `default_body` is added to every request if the server accepts it.
    pub(super) async fn calibrate(
        &mut self,
        arm: &mut Arm,
        default_body: Option<serde_json::Map<String, serde_json::Value>>,
    ) -> Result<(), Stop> {
        let fits = self.context_tokens.map_or(SAMPLE_CHARACTERS, |tokens| {
            tokens * CHARACTERS_PER_TOKEN_LEAST
        });
        let characters = fits.min(SAMPLE_CHARACTERS);
        let given = self.sender.extra_body.clone();
        if let Some(body) = &default_body {
            self.sender.extra_body.clone_from(body);
        }
        let sample = self.write(characters, None);
        let answered = match self.ask_once("the calibration", &sample).await {
            Err(Stop::Failed(ProbeError::Chat { error, .. }))
                if default_body.is_some() && matches!(error.status(), Some(400 | 422)) =>
            {
                self.sender.extra_body = given;
                self.notes.push(
                    "the server refuses `chat_template_kwargs`, so a model that thinks first may \
                     answer late or not at all"
                        .to_owned(),
                );
                let sample = self.write(characters, None);
                self.ask_once("the calibration", &sample).await?
            }
            answered => answered?,
        };
        let counted = Calibration::new(characters, answered.usage.prompt_tokens);
        self.calibration = Some(counted.ok_or(Stop::Refused(ProbeError::UsageMissing))?);
        let observable = answered.cached_tokens.is_some();
        self.add(arm, RequestKind::Calibration, "sample", 0, 0, &answered);
        if observable {
            return Ok(());
        }
        Err(Stop::Refused(ProbeError::ReuseUnavailable {
            why: self.sender.why_unavailable(),
        }))
    }

    /// A document that makes a first turn of `tokens`, with a needle at a depth.
    fn document(&mut self, tokens: u64, needle: Option<(f64, &str)>) -> Document {
        let characters = self
            .calibration
            .map_or(tokens, |calibration| calibration.characters_for(tokens));
        self.write(characters, needle)
    }

    /// A document that fills a message of `characters` together with the
    /// opening question.
    fn write(&mut self, characters: u64, needle: Option<(f64, &str)>) -> Document {
        let characters = usize::try_from(characters).unwrap_or(usize::MAX);
        self.writer
            .write_with(characters.saturating_sub(script::OPENING.len()), needle)
    }

    async fn ask_once(&mut self, attempt: &str, document: &Document) -> Result<Answered, Stop> {
        let messages = [ChatMessage::user(opened(document))];
        self.sender
            .send(attempt, &messages, IGNORED_ANSWER_TOKENS)
            .await
    }

    /// Sends an unrelated request of `tokens`; gives its measured size.
    pub(super) async fn one_off(
        &mut self,
        arm: &mut Arm,
        kind: RequestKind,
        side: &str,
        tokens: u64,
    ) -> Result<u64, Stop> {
        let document = self.document(tokens, None);
        let answered = self.ask_once(side, &document).await?;
        let measured = answered.usage.prompt_tokens;
        self.measured(&document, measured);
        self.add(arm, kind, side, 0, 0, &answered);
        Ok(measured)
    }

    /// Opens a conversation of `tokens`. The first one of a probe is sized anew
    /// until it is right: what was sent for that is no turn.
    pub(super) async fn open(
        &mut self,
        arm: &mut Arm,
        side: &str,
        tokens: u64,
        needle: Option<(f64, &str)>,
    ) -> Result<(Conversation, Document, Turn), Stop> {
        loop {
            let document = self.document(tokens, needle);
            let messages = vec![ChatMessage::user(opened(&document))];
            let attempt = format!("{side} round 1");
            let answered = self.sender.send(&attempt, &messages, ANSWER_TOKENS_MAX);
            let answered = answered.await?;
            let measured = answered.usage.prompt_tokens;
            self.measured(&document, measured);
            if self.must_be_resized(tokens, measured) {
                self.add(arm, RequestKind::Calibration, side, 0, 0, &answered);
                continue;
            }
            self.sized = true;
            let mut conversation = Conversation {
                side: side.to_owned(),
                round: 0,
                messages,
                previous_tokens: 0,
            };
            let turn = self.joined(arm, &mut conversation, RequestKind::Turn, &answered)?;
            return Ok((conversation, document, turn));
        }
    }

    /// Whether a first turn is off, and may still be corrected.
    fn must_be_resized(&mut self, tokens: u64, measured: u64) -> bool {
        if self.sized || !is_off(tokens, measured) {
            return false;
        }
        let Some(calibration) = &mut self.calibration else {
            return false;
        };
        if calibration.corrections < CORRECTIONS_MAX {
            calibration.corrections += 1;
            return true;
        }
        self.notes.push(format!(
            "the first turn has {measured} tokens instead of {tokens}, after {CORRECTIONS_MAX} \
             corrections of its size"
        ));
        false
    }

    fn measured(&mut self, document: &Document, tokens: u64) {
        let characters = document.text.len() + script::OPENING.len();
        if let Some(calibration) = &mut self.calibration {
            calibration.measured(characters as u64, tokens);
        }
    }

    /// The next turn of a conversation, asking `question`.
    pub(super) async fn turn(
        &mut self,
        arm: &mut Arm,
        conversation: &mut Conversation,
        kind: RequestKind,
        question: &str,
    ) -> Result<Turn, Stop> {
        conversation.messages.push(ChatMessage::user(question));
        let attempt = format!("{} round {}", conversation.side, conversation.round + 1);
        let messages = &conversation.messages;
        let answered = self.sender.send(&attempt, messages, ANSWER_TOKENS_MAX);
        let answered = answered.await?;
        self.joined(arm, conversation, kind, &answered)
    }

    /// A copy of a conversation that must not be reused: the same messages, its
    /// first one under a salt of its own.
    pub(super) async fn cold_copy(
        &mut self,
        arm: &mut Arm,
        side: &str,
        messages: &[ChatMessage],
        document: &Document,
    ) -> Result<String, Stop> {
        let mut messages = messages.to_vec();
        let copy = self.writer.salted_anew(document);
        messages[0] = ChatMessage::user(opened(&copy));
        let attempt = format!("{side}, cold copy");
        let answered = self.sender.send(&attempt, &messages, ANSWER_TOKENS_MAX);
        let answered = answered.await?;
        let row = self.add(arm, RequestKind::ColdControl, side, 1, 0, &answered);
        refuse_warm(arm, row)?;
        Ok(said(&answered))
    }

    /// Adds an answer to its conversation.
    fn joined(
        &mut self,
        arm: &mut Arm,
        conversation: &mut Conversation,
        kind: RequestKind,
        answered: &Answered,
    ) -> Result<Turn, Stop> {
        conversation.round += 1;
        let (side, round) = (conversation.side.as_str(), conversation.round);
        let row = self.add(
            arm,
            kind,
            side,
            round,
            conversation.previous_tokens,
            answered,
        );
        conversation.previous_tokens = answered.usage.prompt_tokens;
        let answer = script::answer(&answered.reply.content);
        conversation.messages.push(ChatMessage::assistant(answer));
        refuse_warm(arm, row)?;
        Ok(Turn {
            row,
            answer: said(answered),
        })
    }

    /// Adds a row, judges it by what is known so far, and shows it.
    fn add(
        &mut self,
        arm: &mut Arm,
        kind: RequestKind,
        side: &str,
        round: u32,
        previous_tokens: u64,
        answered: &Answered,
    ) -> usize {
        let millis = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        arm.rows.push(RequestRow {
            kind,
            side: side.to_owned(),
            round,
            prompt_tokens: answered.usage.prompt_tokens,
            cached_tokens: answered.cached_tokens,
            completion_tokens: answered.usage.completion_tokens,
            source: answered.source,
            ttft_ms: millis(answered.reply.ttft),
            e2el_ms: millis(answered.reply.e2el),
            previous_tokens,
            floor_tokens: None,
            block_tokens: None,
            verdict: None,
        });
        self.basis.judge_rows(&mut arm.rows);
        let row = arm.rows.len() - 1;
        (self.watch)(ProbeEvent::Row(&arm.rows[row]));
        row
    }
}

/// The first message of a conversation about `document`.
fn opened(document: &Document) -> String {
    format!("{}{}", document.text, script::OPENING)
}

/// What the model has said; what it only thought counts where it said nothing.
fn said(answered: &Answered) -> String {
    let reply = &answered.reply;
    if reply.content.trim().is_empty() {
        reply.reasoning.clone()
    } else {
        reply.content.clone()
    }
}

fn refuse_warm(arm: &Arm, row: usize) -> Result<(), Stop> {
    match arm.rows[row].verdict {
        Some(TurnVerdict::NotCold) => Err(Stop::NotCold),
        _ => Ok(()),
    }
}
