//! Why a probe did not come to a judgment, each with a stable code, a hint, and
//! whether the input or the world is to blame.

use crate::probe::DesignError;
use crate::service::ControlError;
use crate::service::chat::ChatError;

/// Why a probe ended early, or did not begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// Text that is no URL. It is not repeated: it may hold a secret.
    #[error("`--url` is no http or https URL")]
    BadUrl,
    /// Numbers that cannot be carried out.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// The server could not be asked for something else than an answer.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A request that gave no whole answer.
    #[error("{attempt}: {error}")]
    Chat {
        /// What it was sent for.
        attempt: String,
        /// What came of it.
        error: ChatError,
    },
    /// No choice between several models.
    #[error("the server has several models ({}), and none was chosen", .models.join(", "))]
    SeveralModels {
        /// Their names.
        models: Vec<String>,
    },
    /// A model that the server does not list.
    #[error("the server has no model `{wanted}`; it has {}", .models.join(", "))]
    ModelUnknown {
        /// What was asked for.
        wanted: String,
        /// What there is.
        models: Vec<String>,
    },
    /// An empty list of models.
    #[error("the server lists no model, and none was named")]
    NoModel,
    /// Nothing can be reused.
    #[error("the engine runs with prefix caching off (`enable_prefix_caching=\"False\"`)")]
    PrefixCachingOff,
    /// No token counts.
    #[error("the server reports no `usage` in its streams, so neither sizes nor reuse are known")]
    UsageMissing,
    /// Nothing tells what was reused.
    #[error(
        "reuse cannot be observed: `usage.prompt_tokens_details.cached_tokens` is not reported, and {why}"
    )]
    ReuseUnavailable {
        /// Why the counters cannot stand in.
        why: &'static str,
    },
    /// An interval that no block divides.
    #[error("`--retention` is {interval}, which is no multiple of the block of {block} tokens")]
    RetentionNotAMultiple {
        /// The interval, tokens.
        interval: u64,
        /// The block, tokens.
        block: u64,
    },
    /// Body keys that the probe owns.
    #[error("`--extra-body` holds `{key}`, which the probe sets itself")]
    OwnBodyKey {
        /// The key.
        key: String,
    },
}

impl ProbeError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadUrl => "SERVICE_URL_INVALID",
            Self::Design(error) => error.code(),
            Self::Control(error) => error.code(),
            Self::Chat { error, .. } => error.code(),
            Self::SeveralModels { .. } => "SEVERAL_MODELS",
            Self::ModelUnknown { .. } => "MODEL_UNKNOWN",
            Self::NoModel => "NO_MODEL",
            Self::PrefixCachingOff => "PREFIX_CACHING_OFF",
            Self::UsageMissing => "USAGE_MISSING",
            Self::ReuseUnavailable { .. } => "REUSE_UNAVAILABLE",
            Self::RetentionNotAMultiple { .. } => "RETENTION_NOT_A_MULTIPLE",
            Self::OwnBodyKey { .. } => "EXTRA_BODY_INVALID",
        }
    }

    /// Whether other options would help; otherwise the world has failed.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Control(error) => matches!(
                error,
                ControlError::BadUrl { .. } | ControlError::BadKey | ControlError::BadHeader { .. }
            ),
            Self::Chat { .. } | Self::NoModel => false,
            _ => true,
        }
    }

    /// A way out.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BadUrl => Some("it looks like http://127.0.0.1:8000"),
            Self::Design(DesignError::TooLong { .. }) => {
                Some("choose a smaller size, or start the server with a larger --max-model-len")
            }
            Self::SeveralModels { .. } | Self::ModelUnknown { .. } => Some("choose with --model"),
            Self::NoModel => Some("is it the right server? --model names a model it does not list"),
            Self::PrefixCachingOff => Some("start the server with --enable-prefix-caching"),
            Self::UsageMissing => Some("the server must honor `stream_options.include_usage`"),
            Self::ReuseUnavailable { .. } => {
                Some("start the server with --enable-prompt-tokens-details (vLLM)")
            }
            Self::RetentionNotAMultiple { .. } => {
                Some("is the block right? --block N names the engine's attention block")
            }
            _ => self.service_hint(),
        }
    }

    fn service_hint(&self) -> Option<&'static str> {
        let status = match self {
            Self::Control(error) => error.status(),
            Self::Chat { error, .. } => error.status(),
            _ => None,
        };
        match (self.code(), status) {
            ("SERVICE_UNREACHABLE", _) => {
                Some("is the server running, and are host and port of --url right?")
            }
            ("SERVICE_TIMEOUT", _) => Some("raise --timeout, or look at what the server is doing"),
            ("UNAUTHORIZED", _) => {
                Some("give the key with --api-key-file or the environment variable PCLOAD_API_KEY")
            }
            ("SERVICE_REFUSED", Some(404)) => {
                Some("does the server have a chat endpoint (/v1/chat/completions)?")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_can_change_is_input_and_the_rest_is_the_world() {
        let dead = ControlError::Status {
            url: "http://h/".into(),
            status: 500,
            message: "x".into(),
        };
        let dead = ProbeError::Chat {
            attempt: "the calibration".into(),
            error: ChatError::Control(dead),
        };
        assert!(!dead.is_input());
        assert_eq!(dead.code(), "SERVICE_REFUSED");
        assert!(ProbeError::BadUrl.is_input());
        assert!(ProbeError::Control(ControlError::BadKey).is_input());
        let several = ProbeError::SeveralModels {
            models: vec!["a".into(), "b".into()],
        };
        assert!(several.is_input());
        assert!(several.to_string().contains("(a, b)"));
        let silent = ProbeError::ReuseUnavailable { why: "x" };
        assert!(silent.is_input());
        assert!(
            silent
                .hint()
                .unwrap()
                .contains("--enable-prompt-tokens-details")
        );
    }
}
