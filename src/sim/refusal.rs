//! Refusals: status and body of every error a server answers before it does
//! any work, in the words of the recorded servers.

use serde_json::Value;

use crate::sim::config::Release;
use crate::sim::traceback::{python, traceback};

/// An answer that refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// HTTP status.
    pub(super) status: u16,
    /// `Retry-After`, in seconds.
    pub(super) retry_after: Option<u64>,
    /// Raised so deep inside that 0.24.0 answers without `vary`.
    pub(super) deep: bool,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// `{"error": {…}}`, as the API answers.
    Error {
        message: String,
        kind: &'static str,
        param: Option<String>,
    },
    /// `{"detail": …}`, as the framework answers.
    Detail(&'static str),
    /// `{"error": "Unauthorized"}`.
    Unauthorized,
}

const BAD_REQUEST: &str = "BadRequestError";
/// Kind of what the framework's own validation refuses.
const VALIDATION: &str = "Bad Request";
/// What a server says that takes no more.
pub(super) const BUSY: &str = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.";

impl Refusal {
    fn error(status: u16, kind: &'static str, message: String, param: Option<&str>) -> Self {
        Self {
            status,
            retry_after: None,
            deep: false,
            form: Form::Error {
                message,
                kind,
                param: param.map(str::to_owned),
            },
        }
    }

    /// 400 of the API.
    pub(super) fn bad_request(message: String, param: Option<&str>) -> Self {
        Self::error(400, BAD_REQUEST, message, param)
    }

    /// 400 of the framework.
    pub(super) fn validation(param: &str, problem: &str) -> Self {
        let message = format!("1 validation error:\n  {problem}");
        Self::error(400, VALIDATION, message, Some(param))
    }

    /// 400 of the framework in its own words.
    pub(super) fn framework(message: &str) -> Self {
        Self::error(400, VALIDATION, message.to_owned(), None)
    }

    /// A way to pause that does not exist.
    pub(super) fn pause_mode(mode: &str) -> Self {
        let known = "'abort', 'wait' or 'keep'";
        let problem = format!(
            "{{'type': 'literal_error', 'loc': 'query.mode', 'msg': \"Input should be {known}\", 'input': '{mode}', 'ctx': {{'expected': \"{known}\"}}}}"
        );
        Self::validation("query.mode", &problem)
    }

    /// A field that has to be there.
    pub(super) fn missing(field: &str) -> Self {
        let problem =
            format!("{{'type': 'missing', 'loc': 'body.{field}', 'msg': 'Field required'}}");
        Self::validation(&format!("body.{field}"), &problem)
    }

    /// A value whose meaning is refused. 0.24.0 lets its framework say so, which
    /// repeats the body.
    pub(super) fn invalid(release: Release, param: &str, message: &str, body: &[u8]) -> Self {
        match release {
            Release::V0_32 => {
                Self::bad_request(format!("{message} (parameter={param})"), Some(param))
            }
            Release::V0_24 => {
                let body = serde_json::from_slice(body).unwrap_or(Value::Null);
                Self::validation(
                    param,
                    &format!(
                        "{{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, {message} (parameter={param})', 'input': {}, 'ctx': {{'error': VLLMValidationError('{message}')}}}}",
                        python(&body)
                    ),
                )
            }
        }
    }

    /// No prompt at all.
    pub(super) fn empty_prompt(release: Release, body: &[u8]) -> Self {
        Self::invalid(
            release,
            "prompt",
            "Either prompt or prompt_embeds must be provided and non-empty.",
            body,
        )
    }

    /// What the framework refused with the traceback that 0.24.0 adds.
    pub(super) fn traced(mut self, release: Release, chat: bool) -> Self {
        if let (Release::V0_24, Form::Error { message, kind, .. }) = (release, &mut self.form)
            && *kind == VALIDATION
            && let Some((_, problem)) = message.split_once("\n  ")
        {
            let lines = traceback(problem, chat);
            message.push_str(&lines);
        }
        self
    }

    /// A stop that is neither text nor a list of texts.
    pub(super) fn stop_type(stop: &str) -> Self {
        let message = format!(
            "2 validation errors:\n  {{'type': 'string_type', 'loc': 'body.stop', 'msg': 'Input should be a valid string', 'input': '{stop}'}}\n  {{'type': 'list_type', 'loc': 'body.stop', 'msg': 'Input should be a valid list', 'input': '{stop}'}}"
        );
        Self::error(400, VALIDATION, message, Some("body.stop"))
    }

    /// A number below its minimum.
    pub(super) fn too_small(name: &str, least: i64, value: i64) -> Self {
        Self::bad_request(
            format!(
                "{name} must be at least {least}, got {value}. (parameter={name}, value={value})"
            ),
            Some(name),
        )
    }

    /// A body that is no JSON, or not of the right shape. `loc` is the offset
    /// of the problem, as the framework counts it.
    pub(super) fn json(error: &serde_json::Error, body: &[u8], release: Release) -> Self {
        if error.is_data() {
            let problem = format!("{{'type': 'value_error', 'loc': 'body', 'msg': '{error}'}}");
            return Self::validation("body", &problem);
        }
        let at = offset(error, body);
        let why = if body.is_empty() || error.is_eof() {
            "Expecting value"
        } else {
            "Expecting property name or value"
        };
        let problem = match release {
            Release::V0_32 => format!(
                "{{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {{'error': '{why}'}}}}"
            ),
            Release::V0_24 => format!(
                "{{'type': 'json_invalid', 'loc': ('body', {at}), 'msg': 'JSON decode error', 'input': {{}}, 'ctx': {{'error': '{why}'}}}}"
            ),
        };
        Self::validation(&format!("body.{at}"), &problem)
    }

    /// A body that does not say it is JSON.
    pub(super) fn content_type() -> Self {
        Self::validation(
            "body",
            "Unsupported Media Type: Only 'application/json' is allowed",
        )
    }

    /// A model that is not served.
    pub(super) fn model(release: Release, name: &str, served: &str) -> Self {
        let message = match release {
            Release::V0_24 => format!("The model `{name}` does not exist."),
            Release::V0_32 => {
                format!("The model `{name}` does not exist. Valid aliases: {served}.")
            }
        };
        Self::error(404, "NotFoundError", message, Some("model"))
    }

    /// A rank that does not exist.
    pub(super) fn rank(rank: &str, ranks: usize) -> Self {
        Self::bad_request(
            format!("data_parallel_rank {rank} is out of range [0, {ranks})."),
            None,
        )
        .raised_deep()
    }

    /// An id beyond the vocabulary.
    pub(super) fn token(id: u32) -> Self {
        Self::bad_request(format!("Token id {id} is out of vocabulary"), None).raised_deep()
    }

    fn raised_deep(mut self) -> Self {
        self.deep = true;
        self
    }

    /// A prompt longer than the context.
    pub(super) fn too_long(context: u64) -> Self {
        let least = context + 1;
        Self::bad_request(
            format!(
                "This model's maximum context length is {context} tokens. However, your prompt contains at least {least} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={least})"
            ),
            Some("input_tokens"),
        )
    }

    /// A prompt and output longer than the context together (0.24.0).
    pub(super) fn too_long_together(context: u64, output: u64) -> Self {
        let least = context.saturating_sub(output) + 1;
        let total = least + output;
        Self::bad_request(
            format!(
                "This model's maximum context length is {context} tokens. However, you requested {output} output tokens and your prompt contains at least {least} input tokens, for a total of at least {total} tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value={least})"
            ),
            Some("input_tokens"),
        )
    }

    /// Work that cannot be taken on now.
    pub(super) fn busy() -> Self {
        Self::error(503, "Service Unavailable", BUSY.to_owned(), None)
    }

    /// A limit of somebody in front of the server.
    pub(super) fn too_many_requests() -> Self {
        let message = "Too many requests. Please try again later.".to_owned();
        Self::error(429, "RateLimitError", message, None)
    }

    /// The same refusal with a `Retry-After`.
    pub(super) fn after(mut self, seconds: Option<u64>) -> Self {
        self.retry_after = seconds;
        self
    }

    /// A body larger than the server takes.
    pub(super) fn too_large(most: usize) -> Self {
        let message = format!("Request body is larger than {most} bytes.");
        Self::error(413, "Payload Too Large", message, None)
    }

    /// What only a broken server says.
    pub(super) fn internal(message: String) -> Self {
        Self::error(500, "InternalServerError", message, None)
    }

    /// An unknown path.
    pub(super) fn not_found() -> Self {
        Self::detail(404, "Not Found")
    }

    /// A known path with another method.
    pub(super) fn method() -> Self {
        Self::detail(405, "Method Not Allowed")
    }

    fn detail(status: u16, words: &'static str) -> Self {
        Self {
            status,
            retry_after: None,
            deep: false,
            form: Form::Detail(words),
        }
    }

    /// No key, or a wrong one.
    pub(super) fn unauthorized() -> Self {
        Self {
            status: 401,
            retry_after: None,
            deep: false,
            form: Form::Unauthorized,
        }
    }

    /// The body, compact.
    pub(super) fn body(&self) -> String {
        match &self.form {
            Form::Error {
                message,
                kind,
                param,
            } => {
                let message = Value::from(message.as_str());
                let param = Value::from(param.as_deref());
                let code = self.status;
                format!(
                    r#"{{"error":{{"message":{message},"type":"{kind}","param":{param},"code":{code}}}}}"#
                )
            }
            Form::Detail(words) => format!(r#"{{"detail":"{words}"}}"#),
            Form::Unauthorized => r#"{"error":"Unauthorized"}"#.to_owned(),
        }
    }

    /// The same as a stream event, with the blanks the recorded servers put
    /// into it.
    pub(super) fn event(&self) -> String {
        let Form::Error {
            message,
            kind,
            param,
        } = &self.form
        else {
            return self.body();
        };
        let param = Value::from(param.as_deref());
        format!(
            "data: {{\"error\": {{\"message\": {}, \"type\": \"{kind}\", \"param\": {param}, \"code\": {}}}}}\n\n",
            Value::from(message.as_str()),
            self.status,
        )
    }
}

/// Offset of a JSON problem in characters from the body's start.
fn offset(error: &serde_json::Error, body: &[u8]) -> usize {
    let before: usize = body
        .split_inclusive(|&byte| byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    before + error.column()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_blanks_and_a_body_has_none() {
        let refusal = Refusal::busy();
        assert!(
            refusal
                .body()
                .starts_with(r#"{"error":{"message":"The engine is"#)
        );
        assert!(
            refusal
                .event()
                .starts_with(r#"data: {"error": {"message": "The engine is"#)
        );
        assert!(
            refusal
                .event()
                .ends_with("\"param\": null, \"code\": 503}}\n\n")
        );
    }

    #[test]
    fn members_stand_in_the_recorded_order() {
        assert_eq!(
            Refusal::rank("7", 1).body(),
            r#"{"error":{"message":"data_parallel_rank 7 is out of range [0, 1).","type":"BadRequestError","param":null,"code":400}}"#
        );
    }
}
