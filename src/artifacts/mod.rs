//! Files of a data set and of its runs: row formats, names and versions of
//! `full.jsonl`, `requests.jsonl`, `manifest.json` and `analysis.json`, a store
//! that writes them atomically, the search for a set to use again, a typed
//! reader, and validation. The formats are the reference plugin's, byte for
//! byte; what it does not know stands under one key `pcload`.
//!
//! # What stands under `pcload`
//!
//! | document | key | what it says |
//! |---|---|---|
//! | manifest | `format_version` | [`FORMAT_VERSION`] of the set |
//! | | `config` | the effective `pcload` section of the scenario |
//! | | `server_view` | ids of the tokens the server adds, and the theory with them |
//! | | `solver` | hit total, reachable maximum and each lane's capacity, in blocks |
//! | | `tokenizer_file_sha256` | digest of `tokenizer.json` |
//! | | `length_values_sha256` | digest of lengths that are listed, in CSV files too |
//! | | `warmup_token_ids` | ids of the warm-up prompts, where ids are sent |
//! | row | `server_input_tokens`, `server_hit_tokens` | the row in the server's view |
//! | | `first_divergent_block_sha256` | the block that no other prompt has |
//! | | `prompt_token_ids` | ids of the prompt, where ids are sent |
//! | analysis | all | the judgment of a run; made elsewhere |
//!
//! A manifest with status `incomplete` belongs to a set that is being written
//! or whose writer died; the next `prepare` of the scenario replaces it.
//!
//! The room knows files and JSON. It refuses to know HTTP, and how prompts are
//! made.

mod added;
mod analysis;
mod analysis_schema;
mod dataset;
mod deep;
mod digest;
mod error;
mod figures;
mod lines;
mod location;
pub mod log;
pub mod pyjson;
mod reader;
mod reuse;
mod rows;
mod runs;
mod store;
mod summary;
mod validate;

pub use added::AddedTokens;
pub use analysis::{
    AnalysisStatus, KvPolling, KvSample, MetricsPage, RankActual, RunOutcome, WarmupResult,
    record_run,
};
pub use analysis_schema::analysis_schema;
pub use dataset::{DataSet, TokenizerFacts};
pub use deep::{DeepReport, validate_deep};
pub use error::{ArtifactError, Finding};
pub use figures::{CacheSettings, Figures, GroupFigures, LaneCapacity, RequestFacts};
pub use location::{NotAStamp, SetLocation, Stamp};
pub use reader::{PreparedSet, RowReader};
pub use reuse::{Decision, Inputs, Purpose, decide};
pub use rows::{ANSWER, FullRow, RequestRow, RowExtension, WarmupItem};
pub use runs::RunDirectory;
pub use store::{Claim, SetFiles, SetWriter, write_atomic, write_document};
pub use summary::length_summary;
pub use validate::{ValidateReport, validate};

/// `schema_version` of documents, the reference plugin's.
pub const SCHEMA_VERSION: &str = "1.0";

/// Version of the generation: sets of equal scenario, corpus, tokenizer and
/// format version are byte for byte the same.
pub const FORMAT_VERSION: u64 = 1;

/// `plugin_version` of manifests this program writes.
pub const PLUGIN_VERSION: &str = concat!("pcload/", env!("CARGO_PKG_VERSION"));

/// Most findings that the deep check lists.
pub const FINDINGS_MAX: usize = 20;
