//! What can be wrong with a metrics page, each with a stable code and, where
//! there is a way out, a hint.

use crate::engine::exposition::LineError;
use crate::units::DpRank;

/// Why a metrics page gives no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// A line of a series that matters cannot be read.
    #[error("metrics page, line {}: `{series}`: {}", error.line, error.reason)]
    Unparsable {
        /// The series' name.
        series: String,
        /// Where and why.
        error: LineError,
    },
    /// A counter that is no count of tokens.
    #[error("metrics page, line {line}: `{series}` is `{value}`, which is no count")]
    NotACount {
        /// The series' name.
        series: String,
        /// Line number, from 1.
        line: usize,
        /// The value as text.
        value: String,
    },
    /// Neither engine's series stand on the page.
    #[error("no vLLM and no SGLang series on the metrics page")]
    UnknownEngine,
    /// Both engines' series stand on the page.
    #[error("both vLLM and SGLang series stand on the metrics page")]
    TwoEngines,
    /// A series without which nothing can be said.
    #[error("the metrics page has no {quantity} counter (looked for {names})")]
    SeriesMissing {
        /// `queries` or `hits`.
        quantity: &'static str,
        /// The names looked for.
        names: String,
    },
    /// Ranks that should be there.
    #[error(
        "the metrics page lacks {quantity} of DP rank {ranks} ({seen} engines seen, {configured} configured)"
    )]
    RanksMissing {
        /// `queries` or `hits`.
        quantity: &'static str,
        /// The ranks, listed.
        ranks: String,
        /// Engines on the page.
        seen: usize,
        /// `service.dp_size`.
        configured: u32,
    },
    /// More engines than ranks.
    #[error("{seen} engines seen on the metrics page ({labels}), {configured} configured")]
    DpSizeMismatch {
        /// Engines on the page.
        seen: usize,
        /// Their labels, listed.
        labels: String,
        /// `service.dp_size`.
        configured: u32,
    },
    /// A label that names a rank which does not exist.
    #[error("engine `{label}` is DP rank {rank}, out of range for dp_size {configured}")]
    RankOutOfRange {
        /// The engine label.
        label: String,
        /// What it says.
        rank: u64,
        /// `service.dp_size`.
        configured: u32,
    },
    /// Two labels, one rank.
    #[error("engines `{first}` and `{second}` are both DP rank {rank}")]
    LabelsCollide {
        /// One label.
        first: String,
        /// The other.
        second: String,
        /// The rank.
        rank: DpRank,
    },
    /// A label that names no rank.
    #[error("engine label `{label}` names no DP rank")]
    LabelUnknown {
        /// The engine label.
        label: String,
    },
    /// Several ranks, and nothing that tells them apart.
    #[error(
        "metrics page, line {line}: `{series}` has no rank label, with {configured} ranks configured"
    )]
    LabelMissing {
        /// The series' name.
        series: String,
        /// Line number, from 1.
        line: usize,
        /// `service.dp_size`.
        configured: u32,
    },
    /// Two models on the page, and no choice between them.
    #[error("several models on the metrics page ({models}), none of them is `{wanted}`")]
    SeveralModels {
        /// Their names, listed.
        models: String,
        /// The model asked for; empty when none was.
        wanted: String,
    },
    /// The same quantity twice for one rank.
    #[error(
        "metrics page, line {line}: a second `{series}` for DP rank {rank} (first on line {first_line})"
    )]
    DuplicateSeries {
        /// The series' name.
        series: String,
        /// The rank.
        rank: DpRank,
        /// Line of the first.
        first_line: usize,
        /// Line of the second.
        line: usize,
    },
    /// More found than looked up.
    #[error("prefix cache hits ({hits}) exceed queries ({queries}) for DP rank {rank}")]
    HitsExceedQueries {
        /// The rank.
        rank: DpRank,
        /// Tokens looked up.
        queries: u64,
        /// Tokens found.
        hits: u64,
    },
}

impl MetricsError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unparsable { .. } => "METRICS_UNPARSABLE",
            Self::NotACount { .. } => "METRICS_NOT_A_COUNT",
            Self::UnknownEngine => "METRICS_UNKNOWN_ENGINE",
            Self::TwoEngines => "METRICS_TWO_ENGINES",
            Self::SeriesMissing { .. } => "METRICS_SERIES_MISSING",
            Self::RanksMissing { .. } => "DP_RANKS_MISSING",
            Self::DpSizeMismatch { .. } => "DP_SIZE_MISMATCH",
            Self::RankOutOfRange { .. } => "DP_RANK_OUT_OF_RANGE",
            Self::LabelsCollide { .. } => "ENGINE_LABELS_COLLIDE",
            Self::LabelUnknown { .. } => "ENGINE_LABEL_UNKNOWN",
            Self::LabelMissing { .. } => "ENGINE_LABEL_MISSING",
            Self::SeveralModels { .. } => "METRICS_SEVERAL_MODELS",
            Self::DuplicateSeries { .. } => "METRICS_DUPLICATE_SERIES",
            Self::HitsExceedQueries { .. } => "HITS_EXCEED_QUERIES",
        }
    }

    /// What may help.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownEngine | Self::SeriesMissing { .. } => Some(
                "check service.metrics_url; vLLM needs its statistics on, SGLang needs --enable-metrics",
            ),
            Self::TwoEngines => Some("set pcload.engine to vllm or sglang"),
            Self::RanksMissing { .. } | Self::DpSizeMismatch { .. } => Some(
                "set service.dp_size to the number of data-parallel engines behind metrics_url",
            ),
            Self::RankOutOfRange { .. }
            | Self::LabelsCollide { .. }
            | Self::LabelUnknown { .. } => {
                Some("set service.engine_label_map to say which engine label is which rank")
            }
            Self::LabelMissing { .. } => Some(
                "the server's counters cannot be told apart by rank; run one server per rank, or set service.dp_size to 1",
            ),
            Self::SeveralModels { .. } => {
                Some("set service.model to the model whose counters are meant")
            }
            _ => None,
        }
    }

    /// Whether a server that has not answered any request yet may show this:
    /// some series appear only with the first request.
    pub fn may_pass_with_traffic(&self) -> bool {
        matches!(
            self,
            Self::UnknownEngine | Self::SeriesMissing { .. } | Self::RanksMissing { .. }
        )
    }
}
