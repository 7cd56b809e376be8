//! What the user asked for: raw shape, defaults, cross-field checks. A resolved
//! [`Scenario`] has every default filled and every rule checked; later code
//! never asks "was it set?". Paths are resolved, files are read only through
//! the caller's reader.

mod aisbench;
mod cross;
mod document;
mod groups;
mod json;
mod length;
mod length_file;
mod load;
mod mode;
mod model;
mod paths;
mod pcload;
mod problem;
mod profile;
mod profile_fields;
mod profile_schema;
mod rule;
mod section;
mod selection;
mod service;
mod trace;
mod url;

pub use load::{ManifestPurpose, ManifestScenario, from_manifest, load, schema};

pub use model::{
    AisbenchArgs, AisbenchConfig, AisbenchDataset, AisbenchModel, Assignment, CacheMode, CacheSalt,
    CorpusConfig, EngineChoice, GroupOverride, GroupsConfig, InputLength, LengthRange,
    OrderStrategy, OutputKey, OutputLength, PcloadConfig, PrefixCacheConfig, PromptFormat,
    RequestsConfig, RunConfig, Scenario, Selection, ServiceConfig, SpecialTokens, TokenizerConfig,
    TruncatedNormal, ValidationConfig,
};
pub use problem::{Code, Position, Problem, Problems};
pub use profile::{
    Arrival, FileReader, LoadProfile, PROFILE_INVALID, ProfileError, ProfileProblem, Stage,
    StageEnd, StageLoad,
};
pub use profile_schema::profile_schema;
