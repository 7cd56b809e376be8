//! What can go wrong with a control request: a code, what was asked for (the
//! URL without its secrets), and a hint where there is a way out.

use crate::engine::MetricsError;

/// A control request that gave no usable answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ControlError {
    /// No connection.
    #[error("cannot connect to `{url}`: {reason}")]
    Unreachable {
        /// The URL, without secrets.
        url: String,
        /// What the system said.
        reason: String,
    },
    /// No answer in time.
    #[error("no answer from `{url}` within {seconds} s")]
    Timeout {
        /// The URL, without secrets.
        url: String,
        /// `service.timeout_seconds`.
        seconds: f64,
    },
    /// Not up in the time that was given for it.
    #[error("the server is not ready after {seconds} s: {last}")]
    NotReady {
        /// The limit.
        seconds: f64,
        /// What came of the last try, without secrets.
        last: String,
    },
    /// The connection ended before the answer did.
    #[error("the connection to `{url}` broke: {reason}")]
    Broken {
        /// The URL, without secrets.
        url: String,
        /// What the system said.
        reason: String,
    },
    /// A status other than 2xx.
    #[error("`{url}` answered {status}: {message}")]
    Status {
        /// The URL, without secrets.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's words, bounded, without secrets.
        message: String,
    },
    /// A 2xx whose body is an error.
    #[error("`{url}` answered with an error: {message}")]
    ErrorInAnswer {
        /// The URL, without secrets.
        url: String,
        /// The server's words, bounded, without secrets.
        message: String,
    },
    /// A body that is no JSON object.
    #[error("`{url}` answered with something that is no JSON object: {message}")]
    NotJson {
        /// The URL, without secrets.
        url: String,
        /// Its beginning, without secrets.
        message: String,
    },
    /// A body over the limit.
    #[error("`{url}` answered with more than {limit} bytes")]
    TooLarge {
        /// The URL, without secrets.
        url: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// A page that gives no snapshot.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Text that is no HTTP URL. It is not repeated: it may hold a secret.
    #[error("{field} is no http or https URL")]
    BadUrl {
        /// The scenario's field.
        field: &'static str,
    },
    /// A key that cannot stand in a header.
    #[error("the API key holds characters that cannot be sent in a header")]
    BadKey,
    /// A header that cannot be sent. Its value may be a secret.
    #[error("`{name}` is no header, or its value cannot be sent")]
    BadHeader {
        /// Its name.
        name: String,
    },
    /// The HTTP client cannot be set up.
    #[error("cannot set up the HTTP client: {reason}")]
    NoClient {
        /// What it said.
        reason: String,
    },
}

impl ControlError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "SERVICE_UNREACHABLE",
            Self::Timeout { .. } => "SERVICE_TIMEOUT",
            Self::NotReady { .. } => "SERVICE_NOT_READY",
            Self::Broken { .. } => "SERVICE_CONNECTION_BROKEN",
            Self::Status {
                status: 401 | 403, ..
            } => "UNAUTHORIZED",
            Self::Status { .. } | Self::ErrorInAnswer { .. } => "SERVICE_REFUSED",
            Self::NotJson { .. } => "SERVICE_NOT_OPENAI",
            Self::TooLarge { .. } => "SERVICE_ANSWER_TOO_LARGE",
            Self::Metrics(error) => error.code(),
            Self::BadUrl { .. } => "SERVICE_URL_INVALID",
            Self::BadKey => "API_KEY_INVALID",
            Self::BadHeader { .. } => "HEADER_INVALID",
            Self::NoClient { .. } => "HTTP_CLIENT_FAILED",
        }
    }

    /// What may help.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => {
                Some("is the server running, and are host and port of the service URLs right?")
            }
            Self::Timeout { .. } => {
                Some("raise service.timeout_seconds, or look at what the server is doing")
            }
            Self::Status {
                status: 401 | 403, ..
            } => Some("set service.api_key or the environment variable PCLOAD_API_KEY"),
            Self::Status { status: 404, .. } => Some("check the path of the service URLs"),
            Self::NotJson { .. } => Some(
                "service.inference_url must be an OpenAI completions endpoint (/v1/completions)",
            ),
            Self::Metrics(error) => error.hint(),
            _ => None,
        }
    }

    /// HTTP status of the answer, where there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether asking again later may help: the server was not there, too slow,
    /// or overloaded.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Broken { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }
}
