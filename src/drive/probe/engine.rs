//! The engine's own truth: version, models, metrics, and, on this machine, the
//! process that listens on the port. What cannot be read is unknown; what must
//! be right before anything is sent is checked here.

use crate::engine::{MetricsError, lines};
use crate::probe::{EngineRecord, Fact, FactSource};
use crate::service::{ControlClient, ControlError, ControlSettings, ServedModel};

use super::address::Address;
use super::error::ProbeError;
use super::proc_files::ProcFiles;

/// The gauge whose labels hold vLLM's cache configuration.
const CACHE_CONFIG: &str = "vllm:cache_config_info";

/// Label of the block that the attention layers really use, whatever was asked
/// for (vLLM from 0.32 on).
const RESOLVED_BLOCK: &str = "effective_attention_block_size";

/// Label of the retention interval (vLLM from 0.32 on).
const RETENTION: &str = "prefix_cache_retention_interval";

/// Asks for one data-parallel rank.
pub(super) const RANK_HEADER: &str = crate::service::RANK_HEADER;

/// What was read of an engine.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) record: EngineRecord,
    pub(super) model: String,
    /// Context length in tokens.
    pub(super) context_tokens: Option<u64>,
    pub(super) prefix_caching: Option<bool>,
    /// The metrics page's block.
    pub(super) metric_block: Option<u64>,
    /// Whether the page only repeats what was given on the command line, and
    /// not the block that the engine has resolved from it.
    pub(super) block_repeats_flag: bool,
    pub(super) num_gpu_blocks: Option<u64>,
    pub(super) kv_cache_tokens: Option<u64>,
    /// Data-parallel ranks behind the URL.
    pub(super) ranks: u32,
    /// Reads the counters; `None` where there are none.
    pub(super) counters: Option<ControlClient>,
}

/// Reads the engine behind `settings`. `wanted` is the model asked for.
pub(super) async fn read(
    settings: &ControlSettings,
    address: &Address,
    wanted: Option<&str>,
    files: &ProcFiles,
) -> Result<Engine, ProbeError> {
    let client = ControlClient::new(settings.clone())?;
    let models = models(&client, wanted).await?;
    let model = choose(&models, wanted)?;
    let served = models.iter().find(|served| served.id == model);
    let mut record = EngineRecord::default();
    record.offer("model", Fact::new(model.as_str(), source_of(wanted)));
    let version = client.version().await.ok().flatten();
    offer(&mut record, "version", version);
    let process = files.engine_at(&address.loopback, address.port);
    if let Some(process) = &process {
        process.offer_to(&mut record);
    }
    let by_flag = record.get("block_size").source == FactSource::Flag;
    let listed = served.and_then(|served| served.max_model_len);
    offer(&mut record, "max_model_len", listed);
    let mut engine = Engine {
        context_tokens: listed.or_else(|| record.get("max_model_len").as_u64()),
        record,
        model,
        prefix_caching: None,
        metric_block: None,
        block_repeats_flag: by_flag,
        num_gpu_blocks: None,
        kv_cache_tokens: None,
        ranks: 1,
        counters: None,
    };
    engine.read_metrics(settings).await?;
    Ok(engine)
}

fn source_of(option: Option<&str>) -> FactSource {
    match option {
        Some(_) => FactSource::Option,
        None => FactSource::Metric,
    }
}

fn offer<T: Into<serde_json::Value>>(record: &mut EngineRecord, name: &str, value: Option<T>) {
    let fact = value.map_or(Fact::UNKNOWN, |value| Fact::new(value, FactSource::Metric));
    record.offer(name, fact);
}

/// The models the server lists; none where it has no list and a model is named.
async fn models(
    client: &ControlClient,
    wanted: Option<&str>,
) -> Result<Vec<ServedModel>, ProbeError> {
    match client.models().await {
        Err(ControlError::Status {
            status: 404 | 405, ..
        }) if wanted.is_some() => Ok(Vec::new()),
        models => Ok(models?),
    }
}

fn choose(models: &[ServedModel], wanted: Option<&str>) -> Result<String, ProbeError> {
    let names = || models.iter().map(|model| model.id.clone()).collect();
    match (wanted, models) {
        (Some(wanted), []) => Ok(wanted.to_owned()),
        (Some(wanted), _) if models.iter().any(|model| model.id == wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => Err(ProbeError::ModelUnknown {
            wanted: wanted.to_owned(),
            models: names(),
        }),
        (None, []) => Err(ProbeError::NoModel),
        (None, [only]) => Ok(only.id.clone()),
        (None, _) => Err(ProbeError::SeveralModels { models: names() }),
    }
}

impl Engine {
    async fn read_metrics(&mut self, settings: &ControlSettings) -> Result<(), ProbeError> {
        let mut settings = settings.clone();
        settings.model.clone_from(&self.model);
        settings.dp_size = self.ranks_by_flag();
        let mut client = ControlClient::new(settings.clone())?;
        let mut scrape = client.scrape().await;
        if let Err(ControlError::Metrics(error)) = &scrape
            && let Some(ranks) = ranks_seen(error)
        {
            settings.dp_size = ranks;
            client = ControlClient::new(settings.clone())?;
            scrape = client.scrape().await;
        }
        self.ranks = settings.dp_size;
        let Ok(scrape) = scrape else {
            // A server that has not answered anything may lack series until
            // then: the client is kept, and asked again with each request.
            let bare = matches!(&scrape, Err(ControlError::Metrics(error)) if error.may_pass_with_traffic());
            self.counters = bare.then_some(client);
            for name in METRIC_FACTS {
                offer(&mut self.record, name, None::<u64>);
            }
            return Ok(());
        };
        let facts = &scrape.snapshot.facts;
        self.metric_block = facts.block_size;
        self.num_gpu_blocks = facts.num_gpu_blocks;
        self.kv_cache_tokens = facts.kv_cache_tokens;
        self.prefix_caching = facts.prefix_caching;
        let by_user = self.block_repeats_flag || facts.block_size_set_by_user == Some(true);
        let resolved = config_count(&scrape.page, RESOLVED_BLOCK).is_some();
        self.block_repeats_flag = by_user && !resolved;
        let record = &mut self.record;
        offer(record, "block_size", facts.block_size);
        offer(record, "block_size_metric", facts.block_size);
        offer(record, "num_gpu_blocks", facts.num_gpu_blocks);
        offer(record, "kv_cache_tokens", facts.kv_cache_tokens);
        offer(record, "prefix_caching", facts.prefix_caching);
        offer(
            record,
            "retention_interval",
            config_count(&scrape.page, RETENTION),
        );
        offer(record, "data_parallel_size", Some(self.ranks));
        self.counters = Some(client);
        Ok(())
    }

    fn ranks_by_flag(&self) -> u32 {
        let flag = self.record.get("data_parallel_size").as_u64();
        flag.and_then(|ranks| u32::try_from(ranks).ok())
            .map_or(1, |ranks| ranks.max(1))
    }

    /// Tokens between retained states that the engine itself states; 0 for none.
    pub(super) fn retention_tokens(&self) -> u64 {
        self.record
            .get("retention_interval")
            .as_u64()
            .unwrap_or_default()
    }
}

/// Facts that only the metrics page tells.
const METRIC_FACTS: &[&str] = &[
    "block_size",
    "block_size_metric",
    "num_gpu_blocks",
    "kv_cache_tokens",
    "prefix_caching",
    "retention_interval",
    "data_parallel_size",
];

/// Engines on a page that was read for another number of ranks.
fn ranks_seen(error: &MetricsError) -> Option<u32> {
    let seen = match error {
        MetricsError::DpSizeMismatch { seen, .. } | MetricsError::RanksMissing { seen, .. } => {
            *seen
        }
        MetricsError::RankOutOfRange { rank, .. } => usize::try_from(*rank).ok()?.checked_add(1)?,
        _ => return None,
    };
    u32::try_from(seen).ok().filter(|ranks| *ranks > 0)
}

/// A count among the labels of vLLM's cache configuration.
fn config_count(page: &str, label: &str) -> Option<u64> {
    let line = lines(page).find(|line| line.name() == Some(CACHE_CONFIG))?;
    line.sample().ok()?.label(label)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(names: &[&str]) -> Vec<ServedModel> {
        let model = |id: &&str| ServedModel {
            id: (*id).to_owned(),
            max_model_len: None,
        };
        names.iter().map(model).collect()
    }

    #[test]
    fn the_only_model_is_taken_and_several_are_listed() {
        assert_eq!(choose(&served(&["m"]), None).unwrap(), "m");
        assert_eq!(choose(&served(&["a", "b"]), Some("b")).unwrap(), "b");
        assert_eq!(choose(&[], Some("b")).unwrap(), "b");
        assert_eq!(choose(&[], None), Err(ProbeError::NoModel));
        let several = choose(&served(&["a", "b"]), None).unwrap_err();
        assert!(several.to_string().contains("a, b"));
        let unknown = choose(&served(&["a"]), Some("b")).unwrap_err();
        assert_eq!(unknown.code(), "MODEL_UNKNOWN");
    }

    #[test]
    fn a_page_states_its_retention_interval_or_does_not() {
        let page = |label: &str| format!("# HELP x\nvllm:cache_config_info{{{label}}} 1.0\n");
        let label = "prefix_cache_retention_interval=\"13056\"";
        let count = |label: &str| config_count(&page(label), RETENTION);
        assert_eq!(count(label), Some(13_056));
        assert_eq!(count("prefix_cache_retention_interval=\"None\""), None);
        assert_eq!(count("block_size=\"16\""), None);
    }
}
