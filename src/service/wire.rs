//! The request on the wire: body and head of a completions or chat request. It
//! knows the OpenAI names and sends nothing.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use serde_json::Value;

use super::target::Target;
use crate::units::DpRank;

/// Header that asks vLLM for a data-parallel rank.
pub const RANK_HEADER: &str = "x-data-parallel-rank";

/// Header by which a request names itself.
pub const NAME_HEADER: &str = "x-request-id";

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, by ALPN under TLS and by prior knowledge without. Each stream
    /// still has a connection of its own, so that none waits for another.
    Http2,
}

/// Which endpoint a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `prompt`, `choices[].text`.
    Completions,
    /// `messages`, `choices[].delta`.
    Chat,
}

impl Api {
    /// By the path: `…/chat/completions` is chat.
    pub fn of_path(path: &str) -> Self {
        if path.trim_end_matches('/').ends_with("/chat/completions") {
            Self::Chat
        } else {
            Self::Completions
        }
    }
}

/// What a request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, tokenized by the server.
    Text(String),
    /// Token ids, used as they are.
    TokenIds(Vec<u32>),
}

/// What all bodies of a run have in common.
#[derive(Clone, Debug)]
pub struct BodyTemplate {
    /// Endpoint.
    pub api: Api,
    /// `model`.
    pub model: String,
    /// `stream`; with it, `stream_options.include_usage` is sent.
    pub stream: bool,
    /// Further fields, in their written order.
    pub generation_kwargs: Vec<(String, Value)>,
    /// `add_special_tokens`, where it is to be sent.
    pub add_special_tokens: Option<bool>,
    /// `cache_salt`, where it is to be sent.
    pub cache_salt: Option<String>,
}

impl BodyTemplate {
    /// The body of one request: `model`, `prompt`, `max_tokens`, `stream`,
    /// `stream_options`, the generation arguments, then our own fields.
    pub fn build(&self, prompt: &Prompt, max_tokens: u64) -> Bytes {
        let mut body = Vec::with_capacity(self.size_hint(prompt));
        body.push(b'{');
        member(&mut body, "model", &self.model);
        match (self.api, prompt) {
            (Api::Chat, Prompt::Text(text)) => {
                key(&mut body, "messages");
                body.extend_from_slice(br#"[{"role":"user","content":"#);
                json(&mut body, text);
                body.extend_from_slice(b"}]");
            }
            (Api::Completions, Prompt::Text(text)) => member(&mut body, "prompt", text),
            (_, Prompt::TokenIds(ids)) => member(&mut body, "prompt", ids),
        }
        member(&mut body, "max_tokens", &max_tokens);
        member(&mut body, "stream", &self.stream);
        if self.stream {
            key(&mut body, "stream_options");
            body.extend_from_slice(br#"{"include_usage":true}"#);
        }
        for (name, value) in &self.generation_kwargs {
            member(&mut body, name, value);
        }
        if let Some(add) = self.add_special_tokens {
            member(&mut body, "add_special_tokens", &add);
        }
        if let Some(salt) = &self.cache_salt {
            member(&mut body, "cache_salt", salt);
        }
        body.push(b'}');
        body.into()
    }

    fn size_hint(&self, prompt: &Prompt) -> usize {
        let prompt = match prompt {
            Prompt::Text(text) => text.len() + text.len() / 16,
            Prompt::TokenIds(ids) => ids.len() * 7,
        };
        prompt + self.model.len() + 256
    }
}

fn member(body: &mut Vec<u8>, name: &str, value: &(impl serde::Serialize + ?Sized)) {
    key(body, name);
    json(body, value);
}

fn key(body: &mut Vec<u8>, name: &str) {
    if body.last() != Some(&b'{') {
        body.push(b',');
    }
    json(body, name);
    body.push(b':');
}

fn json(body: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(body, value).expect("plain values serialize into memory");
}

/// Why a header cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header `{name}` cannot be sent: {reason}")]
pub struct HeaderError {
    /// Its name; its value may be a secret.
    pub name: String,
    /// What is wrong.
    pub reason: &'static str,
}

/// What all request heads of a run have in common.
#[derive(Clone, Debug)]
pub struct HeadTemplate {
    uri: Uri,
    headers: HeaderMap,
    version: HttpVersion,
}

impl HeadTemplate {
    /// Heads for `target`. The key becomes a bearer token; without one, a user
    /// named in the URL becomes basic authorization. Custom headers come last
    /// and replace ours.
    pub fn new(
        target: &Target,
        stream: bool,
        api_key: Option<&str>,
        custom: &[(String, String)],
    ) -> Result<Self, HeaderError> {
        let uri = target.path_and_query.parse().map_err(|_| HeaderError {
            name: ":path".to_owned(),
            reason: "not a path",
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, value("host", &target.authority)?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = if stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let agent = concat!("pcload/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let authorization = api_key
            .map(|key| format!("Bearer {key}"))
            .or_else(|| target.basic_authorization());
        if let Some(authorization) = authorization {
            let mut value = value("authorization", &authorization)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        for (name, text) in custom {
            let parsed: HeaderName = name.parse().map_err(|_| HeaderError {
                name: name.clone(),
                reason: "not a header name",
            })?;
            headers.insert(parsed, value(name, text)?);
        }
        Ok(Self {
            uri,
            headers,
            version: HttpVersion::Http1,
        })
    }

    /// The same heads as HTTP/2 wants them: scheme and authority in place of a
    /// `Host` line (RFC 9113, 8.3.1).
    pub fn for_http2(mut self, target: &Target) -> Result<Self, HeaderError> {
        let scheme = if target.tls { "https" } else { "http" };
        self.uri = Uri::builder()
            .scheme(scheme)
            .authority(target.authority.as_str())
            .path_and_query(target.path_and_query.as_str())
            .build()
            .map_err(|_| HeaderError {
                name: ":authority".to_owned(),
                reason: "not a host",
            })?;
        self.headers.remove(HOST);
        self.version = HttpVersion::Http2;
        Ok(self)
    }

    /// Which HTTP these heads are for.
    pub fn version(&self) -> HttpVersion {
        self.version
    }

    /// A request with this body; `rank` is asked for iff the row has one, and a
    /// name is sent iff there is one.
    pub fn request(
        &self,
        body: Bytes,
        rank: Option<DpRank>,
        name: Option<&str>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(rank) = rank {
            request
                .headers_mut()
                .insert(RANK_HEADER, HeaderValue::from(rank.0));
        }
        if let Some(name) = name.and_then(|name| HeaderValue::from_str(name).ok()) {
            request.headers_mut().insert(NAME_HEADER, name);
        }
        request
    }
}

fn value(name: &str, text: &str) -> Result<HeaderValue, HeaderError> {
    HeaderValue::from_str(text).map_err(|_| HeaderError {
        name: name.to_owned(),
        reason: "its value has characters that no header may have",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> BodyTemplate {
        BodyTemplate {
            api: Api::Completions,
            model: "m".into(),
            stream: true,
            generation_kwargs: vec![
                ("temperature".into(), 0.into()),
                ("ignore_eos".into(), true.into()),
            ],
            add_special_tokens: None,
            cache_salt: None,
        }
    }

    #[test]
    fn the_body_has_its_fields_in_order() {
        let mut template = template();
        assert_eq!(
            template.build(&Prompt::Text("a\"b".into()), 7),
            r#"{"model":"m","prompt":"a\"b","max_tokens":7,"stream":true,"stream_options":{"include_usage":true},"temperature":0,"ignore_eos":true}"#
        );
        template.stream = false;
        template.generation_kwargs.clear();
        template.add_special_tokens = Some(false);
        template.cache_salt = Some("s".into());
        assert_eq!(
            template.build(&Prompt::TokenIds(vec![1, 2]), 7),
            r#"{"model":"m","prompt":[1,2],"max_tokens":7,"stream":false,"add_special_tokens":false,"cache_salt":"s"}"#
        );
        template.api = Api::of_path("/v1/chat/completions");
        assert_eq!(
            template.build(&Prompt::Text("x".into()), 1),
            r#"{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1,"stream":false,"add_special_tokens":false,"cache_salt":"s"}"#
        );
    }

    #[test]
    fn the_rank_header_is_there_iff_the_row_has_a_rank() {
        let target = Target::parse("http://h:1/v1/completions").unwrap();
        let head = HeadTemplate::new(&target, true, Some("k"), &[]).unwrap();
        let with = head.request(Bytes::new(), Some(DpRank(3)), Some("r-1"));
        assert_eq!(with.headers()[RANK_HEADER], "3");
        assert_eq!(with.headers()[NAME_HEADER], "r-1");
        assert_eq!(with.headers()[AUTHORIZATION], "Bearer k");
        assert_eq!(with.headers()[HOST], "h:1");
        let without = head.request(Bytes::new(), None, None);
        assert!(!without.headers().contains_key(RANK_HEADER));
    }

    #[test]
    fn http2_has_an_authority_in_place_of_a_host_line() {
        let target = Target::parse("http://h:1/v1/completions?x=1").unwrap();
        let head = HeadTemplate::new(&target, true, None, &[]).unwrap();
        assert_eq!(head.version(), HttpVersion::Http1);
        let head = head.for_http2(&target).unwrap();
        assert_eq!(head.version(), HttpVersion::Http2);
        let request = head.request(Bytes::new(), None, None);
        assert_eq!(request.uri(), "http://h:1/v1/completions?x=1");
        assert!(!request.headers().contains_key(HOST));
    }

    #[test]
    fn custom_headers_replace_ours_and_bad_ones_are_refused() {
        let target = Target::parse("http://h/").unwrap();
        let custom = [("User-Agent".to_owned(), "x".to_owned())];
        let head = HeadTemplate::new(&target, true, None, &custom).unwrap();
        assert_eq!(
            head.request(Bytes::new(), None, None).headers()[USER_AGENT],
            "x"
        );
        for (name, text) in [("a b", "x"), ("a", "x\ny")] {
            let custom = [(name.to_owned(), text.to_owned())];
            let error = HeadTemplate::new(&target, true, None, &custom).unwrap_err();
            assert_eq!(error.name, name);
        }
    }
}
