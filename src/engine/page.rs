//! From a page to a snapshot: which engine, which model, which series of each
//! quantity, and which rank each belongs to. It never picks one series and
//! drops another that could mean the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::adapter::{
    Adapter, EngineChoice, PART_LABELS, Quantity, SGLANG, Source, TWIN_LABELS, VLLM,
    VLLM_CACHE_CONFIG, adapter_of,
};
use crate::engine::error::MetricsError;
use crate::engine::exposition::{Line, Sample, lines};
use crate::engine::facts::add_vllm_cache_config;
use crate::engine::rank::RankMap;
use crate::engine::{EngineFacts, RankSnapshot, ReadOptions, Snapshot};
use crate::units::DpRank;

/// Reads one metrics page.
pub(crate) fn read(page: &str, options: &ReadOptions) -> Result<Snapshot, MetricsError> {
    let found = wanted(page)?;
    let adapter = choose_engine(&found, options.engine)?;
    let (config, series) = found
        .into_iter()
        .filter(|(owner, _)| owner.engine == adapter.engine)
        .map(|(_, sample)| sample)
        .partition::<Vec<_>, _>(|sample| sample.name == VLLM_CACHE_CONFIG);
    let model_names = model_names(&series);
    let series = of_model(series, &model_names, options.model.as_deref());
    let cells = cells(adapter, &series, options, &model_names)?;
    let mut facts = EngineFacts {
        engine: Some(adapter.engine.to_owned()),
        model_names: model_names.into_iter().collect(),
        ..EngineFacts::default()
    };
    for sample in &config {
        add_vllm_cache_config(&mut facts, sample, options.dp_size);
    }
    snapshot(adapter, &cells, options, facts)
}

type Found<'a> = (&'static Adapter, Sample<'a>);

/// All samples of series that are read, of either engine.
fn wanted(page: &str) -> Result<Vec<Found<'_>>, MetricsError> {
    let mut found = Vec::new();
    for line in lines(page) {
        match line.name() {
            Some(name) => {
                if let Some(adapter) = adapter_of(name) {
                    let sample = line.sample().map_err(|error| unparsable(name, error))?;
                    found.push((adapter, sample));
                }
            }
            None => found.extend(quoted(line)?),
        }
    }
    Ok(found)
}

/// A line whose name stands inside the braces.
fn quoted(line: Line<'_>) -> Result<Option<Found<'_>>, MetricsError> {
    match line.sample() {
        Ok(sample) => Ok(adapter_of(&sample.name).map(|adapter| (adapter, sample))),
        Err(error) => {
            let name = line.text().split('"').nth(1).unwrap_or_default();
            match adapter_of(name) {
                Some(_) => Err(unparsable(name, error)),
                None => Ok(None),
            }
        }
    }
}

fn unparsable(series: &str, error: crate::engine::LineError) -> MetricsError {
    MetricsError::Unparsable {
        series: series.to_owned(),
        error,
    }
}

fn choose_engine(
    found: &[Found<'_>],
    choice: EngineChoice,
) -> Result<&'static Adapter, MetricsError> {
    let has = |adapter: &Adapter, queries_only: bool| {
        let queries = adapter.sources[0].names;
        found.iter().any(|(owner, sample)| {
            owner.engine == adapter.engine
                && (!queries_only || queries.contains(&sample.name.as_ref()))
        })
    };
    match choice {
        EngineChoice::Vllm => return Ok(&VLLM),
        EngineChoice::Sglang => return Ok(&SGLANG),
        EngineChoice::Auto => {}
    }
    match (has(&VLLM, false), has(&SGLANG, false)) {
        (true, false) => Ok(&VLLM),
        (false, true) => Ok(&SGLANG),
        (false, false) => Err(MetricsError::UnknownEngine),
        (true, true) => match (has(&VLLM, true), has(&SGLANG, true)) {
            (true, false) => Ok(&VLLM),
            (false, true) => Ok(&SGLANG),
            _ => Err(MetricsError::TwoEngines),
        },
    }
}

fn model_names(series: &[Sample<'_>]) -> BTreeSet<String> {
    series
        .iter()
        .filter_map(|sample| sample.label("model_name"))
        .map(str::to_owned)
        .collect()
}

/// The series of the wanted model, where the page knows it under that name;
/// otherwise all (a server may count an alias under another name).
fn of_model<'a>(
    mut series: Vec<Sample<'a>>,
    names: &BTreeSet<String>,
    wanted: Option<&str>,
) -> Vec<Sample<'a>> {
    if let Some(wanted) = wanted.filter(|wanted| names.contains(*wanted)) {
        series.retain(|sample| {
            sample
                .label("model_name")
                .is_none_or(|model| model == wanted)
        });
    }
    series
}

/// The values of one quantity, by rank, and the name they stood under.
struct Cells {
    values: BTreeMap<(Quantity, DpRank), f64>,
    names: BTreeMap<Quantity, &'static str>,
    engines_seen: usize,
}

fn cells(
    adapter: &'static Adapter,
    series: &[Sample<'_>],
    options: &ReadOptions,
    model_names: &BTreeSet<String>,
) -> Result<Cells, MetricsError> {
    let ranks = RankMap::new(adapter.rank_label, series, options)?;
    let mut cells = Cells {
        values: BTreeMap::new(),
        names: BTreeMap::new(),
        engines_seen: ranks.engines_seen(),
    };
    for source in adapter.sources {
        let Some((name, by_rank)) = first_present(source, series, &ranks)? else {
            continue;
        };
        cells.names.insert(source.quantity, name);
        for (rank, samples) in by_rank {
            let value = combine(adapter, source.quantity, rank, &samples).map_err(|error| {
                if models_differ(&samples) {
                    several_models(model_names, options)
                } else {
                    error
                }
            })?;
            cells.values.insert((source.quantity, rank), value);
        }
    }
    Ok(cells)
}

type ByRank<'a> = BTreeMap<DpRank, Vec<&'a Sample<'a>>>;

/// The series under the first of a source's names that has any.
fn first_present<'a>(
    source: &Source,
    series: &'a [Sample<'a>],
    ranks: &RankMap<'_>,
) -> Result<Option<(&'static str, ByRank<'a>)>, MetricsError> {
    for name in source.names {
        let mut by_rank = ByRank::new();
        for sample in series {
            let passes = source
                .only
                .is_none_or(|only| only.passes(sample.label(only.label)));
            if passes && sample.name == *name && is_usable(source.quantity, sample)? {
                by_rank.entry(ranks.rank(sample)?).or_default().push(sample);
            }
        }
        if !by_rank.is_empty() {
            return Ok(Some((name, by_rank)));
        }
    }
    Ok(None)
}

/// A counter must be a count. A gauge that is no number is as good as absent.
fn is_usable(quantity: Quantity, sample: &Sample<'_>) -> Result<bool, MetricsError> {
    let usable = sample.value.is_finite() && (0.0..TOO_MANY).contains(&sample.value);
    if usable || quantity.is_gauge() {
        return Ok(usable);
    }
    Err(MetricsError::NotACount {
        series: sample.name.to_string(),
        line: sample.line,
        value: sample.value.to_string(),
    })
}

/// Counts stop where a 64-bit number would (2^63).
const TOO_MANY: f64 = 9_223_372_036_854_775_808.0;

/// One value out of the series of one rank. Parts are added (counters) or the
/// largest is taken (levels that several processes report); anything else that
/// stands twice is an error.
fn combine<'a>(
    adapter: &Adapter,
    quantity: Quantity,
    rank: DpRank,
    samples: &[&'a Sample<'a>],
) -> Result<f64, MetricsError> {
    let mut parts: Parts<'_> = BTreeMap::new();
    for sample in samples {
        let part = parts
            .entry(part_of(sample, TWIN_LABELS))
            .or_insert((sample, sample.value));
        let twin = TWIN_LABELS
            .iter()
            .any(|label| sample.label(label).is_some());
        if part.0.line != sample.line && !twin {
            return Err(duplicate(sample, rank, part.0));
        }
        part.1 = part.1.max(sample.value);
    }
    let addable = adapter.sums_any_label || differ_only_in(PART_LABELS, &parts);
    if let (false, [first, second, ..]) = (addable, samples) {
        return Err(duplicate(second, rank, first));
    }
    if models_differ(samples) {
        return Err(duplicate(samples[1], rank, samples[0]));
    }
    let values = parts.values().map(|(_, value)| *value);
    Ok(if quantity.is_gauge() {
        values.fold(0.0, f64::max)
    } else {
        values.sum()
    })
}

/// Series of one quantity and rank by what tells them apart, each with the
/// first sample and the largest value.
type Parts<'a> = BTreeMap<Vec<(&'a str, &'a str)>, (&'a Sample<'a>, f64)>;

/// The labels of a sample without those in `but`, sorted.
fn part_of<'a>(sample: &'a Sample<'a>, but: &[&str]) -> Vec<(&'a str, &'a str)> {
    let mut labels: Vec<(&str, &str)> = sample
        .labels
        .iter()
        .map(|(key, value)| (key.as_ref(), value.as_ref()))
        .filter(|(key, _)| !but.contains(key))
        .collect();
    labels.sort_unstable();
    labels
}

fn differ_only_in(allowed: &[&str], parts: &Parts<'_>) -> bool {
    let rest: BTreeSet<Vec<&(&str, &str)>> = parts
        .keys()
        .map(|part| {
            part.iter()
                .filter(|(key, _)| !allowed.contains(key))
                .collect()
        })
        .collect();
    rest.len() == 1
}

fn models_differ(samples: &[&Sample<'_>]) -> bool {
    let models: BTreeSet<_> = samples
        .iter()
        .map(|sample| sample.label("model_name"))
        .collect();
    models.len() > 1
}

fn duplicate(sample: &Sample<'_>, rank: DpRank, first: &Sample<'_>) -> MetricsError {
    MetricsError::DuplicateSeries {
        series: sample.name.to_string(),
        rank,
        first_line: first.line,
        line: sample.line,
    }
}

fn several_models(names: &BTreeSet<String>, options: &ReadOptions) -> MetricsError {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    MetricsError::SeveralModels {
        models: quoted.join(", "),
        wanted: options.model.clone().unwrap_or_default(),
    }
}

fn snapshot(
    adapter: &Adapter,
    cells: &Cells,
    options: &ReadOptions,
    facts: EngineFacts,
) -> Result<Snapshot, MetricsError> {
    let count = |quantity, rank| cells.values.get(&(quantity, rank)).copied().map(whole);
    complete(adapter, cells, options)?;
    let mut ranks = BTreeMap::new();
    for rank in (0..options.dp_size).map(DpRank) {
        let one = RankSnapshot {
            queries: count(Quantity::Queries, rank).unwrap_or(0),
            hits: count(Quantity::Hits, rank).unwrap_or(0),
            external_queries: count(Quantity::ExternalQueries, rank),
            external_hits: count(Quantity::ExternalHits, rank),
            prompt_tokens: count(Quantity::PromptTokens, rank),
            prompt_tokens_cached: count(Quantity::PromptTokensCached, rank),
            generation_tokens: count(Quantity::GenerationTokens, rank),
            preemptions: count(Quantity::Preemptions, rank),
            kv_cache_usage: cells.values.get(&(Quantity::KvCacheUsage, rank)).copied(),
            requests_running: count(Quantity::RequestsRunning, rank),
            requests_waiting: count(Quantity::RequestsWaiting, rank),
            counting_since_ms: cells
                .values
                .get(&(Quantity::CountingSince, rank))
                .map(|seconds| whole(seconds * 1e3)),
        };
        if one.hits > one.queries {
            return Err(MetricsError::HitsExceedQueries {
                rank,
                queries: one.queries,
                hits: one.hits,
            });
        }
        ranks.insert(rank, one);
    }
    let (plugin, other): (BTreeMap<_, _>, BTreeMap<_, _>) = cells
        .names
        .iter()
        .map(|(quantity, name)| (quantity.key().to_owned(), (*name).to_owned()))
        .partition(|(key, _)| matches!(key.as_str(), "queries" | "hits" | "kv"));
    Ok(Snapshot {
        ranks,
        metric_names: plugin,
        other_metric_names: other,
        facts,
    })
}

/// Queries and hits of every configured rank must be there.
fn complete(adapter: &Adapter, cells: &Cells, options: &ReadOptions) -> Result<(), MetricsError> {
    for source in adapter.sources {
        let required = match source.quantity {
            Quantity::Queries => true,
            Quantity::Hits => !adapter.hits_may_be_absent,
            _ => false,
        };
        if !required {
            continue;
        }
        let quantity = source.quantity.key();
        if !cells.names.contains_key(&source.quantity) {
            return Err(MetricsError::SeriesMissing {
                quantity,
                names: source.names.join(", "),
            });
        }
        let missing: Vec<String> = (0..options.dp_size)
            .map(DpRank)
            .filter(|rank| !cells.values.contains_key(&(source.quantity, *rank)))
            .take(RANKS_LISTED_MAX)
            .map(|rank| rank.to_string())
            .collect();
        if !missing.is_empty() {
            return Err(MetricsError::RanksMissing {
                quantity,
                ranks: missing.join(", "),
                seen: cells.engines_seen,
                configured: options.dp_size,
            });
        }
    }
    Ok(())
}

/// Missing ranks named in one message.
const RANKS_LISTED_MAX: usize = 16;

/// A count out of a sample's value: fractions are cut off, as the reference
/// does. `is_usable` has checked the range.
fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite, at least 0 and below 2^63; sums saturate"
    )]
    let count = value as u64;
    count
}
