//! What the user asked for: raw shape, defaults, cross-field checks. A resolved
//! [`Scenario`] has every default filled and every rule checked; later code
//! never asks "was it set?". Paths are resolved, files are read only through
//! the caller's reader.

mod model;

pub use model::{
    AisbenchArgs, AisbenchConfig, AisbenchDataset, AisbenchModel, Assignment, CacheMode, CacheSalt,
    CorpusConfig, EngineChoice, GroupOverride, GroupsConfig, InputLength, LengthRange,
    OrderStrategy, OutputKey, OutputLength, PcloadConfig, PrefixCacheConfig, PromptFormat,
    RequestsConfig, RunConfig, Scenario, Secret, Selection, ServiceConfig, SpecialTokens,
    TokenizerConfig, TruncatedNormal, ValidationConfig,
};
